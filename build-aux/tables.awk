# SPDX-License-Identifier: Apache-2.0
#
# tables.awk - fill a page with the tables of options and variables
#
#     awk [-v markdown=1] -f tables.awk TABLES... PAGE
#
# TABLES are *.def files, and ddp.h for the exit statuses. PAGE is copied to stdout. In it a line
# @NAME_TABLE@ is replaced by that table, as roff or Markdown, and @OPTION_WORDS@ by the options of the
# plugin, with "=" after those that have a value. EXEC_TABLE has the rows of exec-options.def and
# options.def in the order of the files.
#
# The name of a row's macro is the first word of its line. The only escape in strings is \".

BEGIN {
	columns = "| name | meaning |\n|---|---|"
	kinds["IDENTITY"] = "Identity: always set"
	kinds["POLITE"] = "Endpoint and defaults: set unless you did"
	kinds["TORCHRUN"] = "For torchrun: set where each node has one task, unless you did"
	kinds["OURS"] = "For libddp and scripts: always set where known"
}

function fail(text)
{
	print "tables.awk: " FILENAME ":" FNR ": " text >"/dev/stderr"
	exit 1
}

# --- Formats ------------------------------------------------------------------------------

# Without the escape, roff would print a hyphen.
function escaped(text)
{
	if (!markdown)
		gsub(/-/, "\\-", text)
	return text
}

function bold(text) { return markdown ? text : "\\fB" escaped(text) "\\fR" }

function italic(text) { return markdown || text == "" ? text : "\\fI" escaped(text) "\\fR" }

function cell(text)
{
	gsub(/\|/, "\\|", text)
	gsub(/</, "\\&lt;", text)
	return text
}

function add(table, text)
{
	if (table in tables)
		text = tables[table] "\n" text
	tables[table] = text
}

# Start a section of [table], unless its last row is in this section.
function add_title(table, title)
{
	if (title == "")
		fail("the section of this row has no title")
	if (titles[table] == title)
		return
	titles[table] = title
	add(table, markdown ? (table in tables ? "\n" : "") "### " title "\n\n" columns : ".SS " title)
}

# Add a row whose name is [head] and whose meaning is [text], followed by the sentence [more].
function add_row(table, head, text, more)
{
	text = escaped(text) (more == "" ? "" : (markdown ? " " : "\n") more)
	if (markdown && !(table in tables))
		add(table, columns)
	add(table, markdown ? "| `" cell(head) "` | " cell(text) " |" : ".TP\n" head "\n" text)
}

# --- Rows, with the fields that the comments of the *.def files describe --------------------

function add_exec_option(name, argument, manual, default_from)
{
	add_row("EXEC", bold("--" name (argument == "" ? "" : "=")) italic(argument), manual, default_from)
}

function add_plugin_option(id, option, argument, environment, plugstack, manual,    name, default_from)
{
	if (plugstack != "")
		add_row("ARGUMENT", markdown ? plugstack "=" argument : ".BI " plugstack "= \"" escaped(argument) "\"", manual)
	if (option == "")
		return
	if (environment != "")
		default_from = "Default from the environment:" (markdown ? " `" environment "`" : "\n.BR " environment " .")
	name = option (argument == "" ? "" : "=")
	words = words (words == "" ? "" : " ") "--" name
	add_row("OPTION", (markdown ? "" : ".B ") escaped("--" name argument), manual, default_from)
	if (id != "DDP" && id != "NO_DDP")
		add_exec_option(option, argument, manual, default_from)
}

function add_run_option(name, argument, help)
{
	add_row("RUN", bold("--" name) (argument ~ /^(\[|$)/ ? "" : " ") italic(argument), help ".")
}

function add_train_option(name, letter, argument, kind, mnist, cifar, section, help,    head, value)
{
	head = (letter == "0" ? "" : bold("-" substr(letter, 2, 1)) ", ") bold("--" name)
	if (argument != "")
		head = head " " (kind == "WORD" ? escaped(argument) : italic(argument))
	value = mnist == cifar ? mnist : mnist " for mnist, " cifar " for cifar"
	add_title("TRAIN", sections[section])
	add_row("TRAIN", head, help ".", value == "" ? "" : "Default: " value ".")
}

function add_variable(name, kind, text)
{
	add_title("CONTRACT", kinds[kind])
	add_row("CONTRACT", (markdown ? "" : ".B ") name, text)
}

function add_setting(name, value, text)
{
	if (markdown)
		add_row("SETTINGS", name, text, value == "" ? "" : "Default: " value ".")
	else
		add_row("SETTINGS", ".BR " name (value == "" ? "" : " \" (default \" " escaped(value) ")"), text)
}

function add_fields(file)
{
	if (macro == "DDP_VARIABLE")
		add_variable(field[1], field[2], field[3])
	else if (macro == "DDP_SETTING")
		add_setting(field[1], field[2], field[3])
	else if (macro == "DDP_FRAMEWORK")
		add_row("FRAMEWORKS", ".BR \"" field[1] "\" \", since " field[8] "\"\n" field[2] "=" field[7] "\n.br", field[9])
	else if (macro == "DDP_FRAMEWORK_NONE")
		add_row("FRAMEWORKS", ".B " field[1], field[2])
	else if (macro == "DDP_OPTION")
		add_plugin_option(field[1], field[2], field[3], field[4], field[5], field[8])
	else if (macro == "EXEC_OPTION")
		add_exec_option(field[2], "", field[4])
	else if (macro == "OPTION" && file ~ /run-options/)
		add_run_option(field[2], field[3], field[7])
	else if (macro == "OPTION")
		add_train_option(field[2], field[3], field[4], field[5], field[6], field[7], field[8], field[9])
	else if (macro == "X" && file ~ /train-options/)
		sections[field[1]] = field[2]
	else if (macro == "X" && field[2] ~ /^-/) # a row of DDP_STATUS_MAP
		add("STATUSES", 64 - field[2] "\tDDP_ERR_" field[1] "\t" escaped(field[3]))
}

# --- The tables, which are read first, and the page ----------------------------------------

# Read the token at the start of [line]: a string, which continues the string before it; a word; or
# a separator. Returns its length.
function read_token(line,    token)
{
	if (match(line, /^"([^"\\]|\\")*"/)) {
		token = substr(line, 2, RLENGTH - 2)
		gsub(/\\"/, "\"", token)
		field[count] = field[count] token
	} else if (match(line, /^[^ \t",()]+/)) {
		token = substr(line, 1, RLENGTH)
		if (token != "NULL")
			field[count] = field[count] token
	} else {
		token = substr(line, 1, 1)
		RLENGTH = 1
		if (token == "\"")
			fail("the string is not closed, or has an escape that tables.awk does not know")
		depth += (token == "(") - (token == ")")
		if (token == "," && depth == 1)
			field[++count] = ""
	}
	return RLENGTH
}

FILENAME ~ /\.(def|h)$/ {
	line = $0
	if (!depth) {
		if (!match(line, /^[ \t]*[A-Z_]+\(/))
			next
		macro = substr(line, 1, RLENGTH - 1)
		sub(/^[ \t]*/, "", macro)
		line = substr(line, RLENGTH + 1)
		depth = count = 1
		field[1] = ""
	}
	while (depth && line != "")
		line = substr(line, read_token(line) + 1)
	if (!depth)
		add_fields(FILENAME)
	next
}

/^@[A-Z]+_TABLE@$/ {
	name = substr($0, 2, length($0) - 8)
	if (!(name in tables))
		fail("the given tables have no rows for " $0)
	print tables[name]
	next
}

{
	sub(/@OPTION_WORDS@/, words)
	print
}
