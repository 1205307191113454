# SPDX-License-Identifier: Apache-2.0
# embed.awk - prints page.html, with style and script inlined, as two C strings: page_before and
# page_after the data
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
/^<!-- / { next } # comments of the source
/@RUN@/ { print ";\nstatic const char page_after[] ="; next }
{ text($0) }
END { print ";" }
