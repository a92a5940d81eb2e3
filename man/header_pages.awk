# SPDX-License-Identifier: Apache-2.0
# Makes a manual page of each part of ctrun.h: of a declaration, then of the comment above it.
#
#     awk -v to=FOLDER -f header_pages.awk libctrun.3 ctrun.h
#
# A part begins with a line "/* ---- ctrun_PART(3): TITLE ---- */". Its page is FOLDER/ctrun_PART.3; a page for each of
# its functions leads there. A comment belongs to what follows it up to an empty line, but where that begins with
# "struct NAME;", to this line alone. In comments a line that is indented by four more columns is an example.
# libctrun.3 gives the date.

function escape(text)
{
    gsub(/\\/, "\\e", text)
    return (text ~ /^[.']/ ? "\\" "&" : "") text
}

function add(text) { body = body text "\n" }

function set_example(is_wanted)
{
    if (is_wanted != in_example)
        add(is_wanted ? ".Bd -literal -offset indent" : ".Ed\n.Pp")
    in_example = is_wanted
}

# mdoc wants each sentence on a line of its own.
function add_sentences(line,    sentences, count, i)
{
    gsub(/[.] +/, ".\n", line)
    count = split(line, sentences, "\n")
    for (i = 1; i <= count; i++)
        add(escape(sentences[i]))
}

# What a comment says: `words`, its lines.
function add_words(    lines, count, i)
{
    count = split(words, lines, "\n") - 1
    add(".Pp")
    for (i = 1; i <= count; i++) {
        if (lines[i] == "" && lines[i + 1] ~ /^    /)
            continue
        if (lines[i] == "" && !in_example)
            add(".Pp")
        set_example(lines[i] ~ /^    /)
        if (lines[i] ~ /^    /)
            add(escape(substr(lines[i], 5)))
        else if (lines[i] != "")
            add_sentences(lines[i])
    }
    set_example(0)
    words = ""
}

function add_code()
{
    sub(/\n+$/, "\n", code)
    add(".Bd -literal")
    add(code ".Ed")
    code = ""
}

function flush()
{
    if (code != "")
        add_code()
    if (words != "")
        add_words()
}

function print_returns(file,    i, count)
{
    print ".Sh RETURN VALUES\nA function that returns\n.Vt int\nand can fail returns 0 or more on success, else a negative" > file
    print ".Xr errno 3\nor one of\n.Xr ctrun-errors 7 ;\n.Va err ,\nwhich may be NULL, then has the code and a sentence." > file
    for (i = 1; i <= code_count; i++)
        if (index(body, "CTRUN_" code_names[i])) {
            if (count++ == 0)
                print "Of the codes these are named above:\n.Bl -tag -width CTRUN_E_UNREACHABLE -compact" > file
            print ".It Dv CTRUN_" code_names[i] "\n" code_texts[i] > file
        }
    if (count > 0)
        print ".El" > file
}

# man finds the page of the part under the name of each function.
function lead_here(    file, i)
{
    for (i = 1; i <= function_count; i++) {
        file = to "/" functions[i] ".3"
        if (functions[i] != part) {
            print ".so man3/" part ".3" > file
            close(file)
        }
    }
}

function finish(    file)
{
    flush()
    if (part == "")
        return
    lead_here()
    file = to "/" part ".3"
    gsub(/(\.Pp\n)+/, ".Pp\n", body)
    gsub(/\.Pp\n\.Bd/, ".Bd", body)
    sub(/^\.Pp\n/, "", body)
    sub(/\.Pp\n$/, "", body)
    print ".\\\" SPDX-License-Identifier: Apache-2.0\n" date "\n.Dt " toupper(part) " 3\n.Os\n.Sh NAME" > file
    print names "\n.Nd " title > file
    print ".Sh LIBRARY\n.Li pkg-config --cflags --libs ctrun\n.Sh SYNOPSIS\n.In ctrun.h\n.Bd -literal" > file
    print prototypes ".Ed\n.Sh DESCRIPTION" > file
    printf "%s", body > file
    if (index(body, "struct ctrun_error *err"))
        print_returns(file)
    print ".Sh SEE ALSO\n.Xr libctrun 3 ,\n.Xr ctrun-errors 7" > file
    close(file)
}

/^\.Dd / { date = $0 }

/^    X\(E_/ {
    code_names[++code_count] = $0
    sub(/^ *X\(/, "", code_names[code_count])
    sub(/,.*/, "", code_names[code_count])
}
/^ .*"\)( *\\)?$/ && match($0, /"[^"]*"/) { code_texts[code_count] = substr($0, RSTART + 1, RLENGTH - 2) }

/^\/\* ---- ctrun_[a-z_]*\(3\): / {
    finish()
    part = $3
    sub(/\(3\):/, "", part)
    title = $0
    sub(/^[^:]*: /, "", title)
    sub(/ -+ \*\/$/, "", title)
    body = names = prototypes = words = code = ""
    function_count = 0
    next
}
/^#ifdef __cplusplus/ { finish(); part = "" }
part == "" { next }

/^\/\*/ {
    flush()
    in_words = 1
}
in_words {
    is_last = /\*\/$/
    sub(/^\/\* ?/, "")
    sub(/^ \* ?/, "")
    sub(/ ?\*\/$/, "")
    words = words $0 "\n"
    in_words = !is_last
    next
}
/^$/ {
    flush()
    next
}
{
    if (match($0, /ctrun_[a-z0-9_]*\(/) && (/^CTRUN_API/ || is_open)) {
        functions[++function_count] = substr($0, RSTART, RLENGTH - 1)
        names = names (names == "" ? "" : " ,\n") ".Nm " functions[function_count]
    }
    is_open = /^CTRUN_API/ && !/\(/
    if (/^CTRUN_API/)
        in_prototype = 1
    if (sub(/^CTRUN_API /, ""))
        is_shifted = 1
    else if (match($0, /^ +/) && is_shifted)
        $0 = substr($0, 1 + (RLENGTH < 10 ? RLENGTH : 10))
    else
        is_shifted = 0
    code = code escape($0) "\n"
    if (in_prototype)
        prototypes = prototypes escape($0) "\n"
    if (/;$/)
        in_prototype = 0
    if (words != "" && /^struct ctrun_[a-z0-9_]+;/)
        flush()
}
