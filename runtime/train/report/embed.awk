# SPDX-License-Identifier: Apache-2.0
# embed.awk - page.html with its style and script inside, as C strings: before the run, and after it
#
#	awk -v dir=DIRECTORY -f embed.awk DIRECTORY/page.html >page-assets.h

function text(line)
{
	gsub(/[\\"?]/, "\\\\&", line)
	print "\"" line "\\n\""
}

function file(name, tag,    line)
{
	text("<" tag ">")
	while ((getline line <(dir "/" name)) > 0)
		text(line)
	text("</" tag ">")
}

BEGIN { print "static const char page_before[] =" }
/href="page\.css"/ { file("page.css", "style"); next }
/src="page\.js"/ { file("page.js", "script"); next }
/^<!-- / { next } # those are for readers of the source
/@RUN@/ { print ";\nstatic const char page_after[] ="; next }
{ text($0) }
END { print ";" }
