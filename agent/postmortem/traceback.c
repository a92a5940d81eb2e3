/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/postmortem/traceback.h"

#include "agent/postmortem/facts.h"
#include "worker_sdk/base/str.h"

enum {
    FOREIGN_LINES_MAX = 50, /* lines of other writers, in between */
    FRAME_MAX_BYTES = 300,
    FATAL_FRAMES_MAX = 32, /* the innermost ones */
    CXX_NEAR_BYTES = 8192  /* from what C++ wrote to the abort of the same process */
};

static const char python[] = "Traceback (most recent call last)";
static const char cxx[] = "terminate called after throwing an instance of '";
static const char what[] = "  what():  ";
static const char assertion[] = ": Assertion `";
static const char frame_mark[] = "  File \"";
/* Python's faulthandler, which ctrun turns on: docs.python.org/3/library/faulthandler.html */
static const char fatal[] = "Fatal Python error: ";
static const char aborted[] = "Fatal Python error: Aborted";
static const char current_thread[] = "Current thread 0x";
static const char recent_first[] = " (most recent call first):";

/* ---- Finding it ------------------------------------------------------------------------- */

struct line {
    const char *at;
    size_t length; /* without its end */
};

static const char *find(const char *data, size_t length, const char *words)
{
    return memmem(data, length, words, strlen(words));
}

/* Takes the next line off the data; false: there is none. */
static bool next_line(struct line *line, const char **data, const char *end)
{
    const char *feed;

    if (*data == end)
        return false;
    feed = memchr(*data, '\n', (size_t)(end - *data));
    line->at = *data;
    line->length = (size_t)((feed ? feed : end) - *data);
    *data = feed ? feed + 1 : end;
    if (line->length > 0 && line->at[line->length - 1] == '\r')
        line->length--;
    return true;
}

static bool has_prefix(const struct line *line, const char *prefix, size_t length)
{
    return line->length >= length && memcmp(line->at, prefix, length) == 0;
}

static bool is_line(const struct line *line, const char *prefix, const char *suffix)
{
    const size_t end = strlen(suffix);

    return has_prefix(line, prefix, strlen(prefix)) && line->length >= end &&
           memcmp(line->at + line->length - end, suffix, end) == 0;
}

/* Drops whole lines when there is no room. Zeros that a program may have written are replaced:
 * they would end the text, and hide the end of a line from the next call. */
static void append(char *dst, const char *at, size_t length)
{
    size_t used = strlen(dst);
    const char *keep = dst;

    if (length > TRACEBACK_MAX_BYTES / 2)
        length = TRACEBACK_MAX_BYTES / 2;
    while (used - (size_t)(keep - dst) + length + 2 > TRACEBACK_MAX_BYTES)
        keep = strchr(keep, '\n') + 1;
    used -= (size_t)(keep - dst);
    memmove(dst, keep, used);
    memcpy(dst + used, at, length);
    for (char *zero; (zero = memchr(dst + used, '\0', length));)
        *zero = '?';
    dst[used + length] = '\n';
    dst[used + length + 1] = '\0';
}

/* Copies the frames and the exception behind a headline. The text in front of "Traceback" is
 * removed from their lines, too, unless it was a word ("Original Traceback"). False: the
 * traceback has no end. */
static bool copy_python(char *dst, const char *headline, const struct line *first,
                        const char **data, const char *end)
{
    const char *prefix = first->at;
    size_t prefix_length = (size_t)(headline - first->at);
    struct line line;

    dst[0] = '\0';
    append(dst, headline, first->length - prefix_length);
    for (int n = 0, foreign = 0;
         foreign < FOREIGN_LINES_MAX && next_line(&line, data, end); n++) {
        if (!has_prefix(&line, prefix, prefix_length)) {
            if (n > 0) {
                foreign++;
                continue;
            }
            prefix_length = 0;
        }
        append(dst, line.at + prefix_length, line.length - prefix_length);
        if (line.length > prefix_length && line.at[prefix_length] != ' ')
            return true;
    }
    return false;
}

static void append_cxx(char *dst, const struct line *first, const char **data,
                       const char *end)
{
    const char *next = *data;
    struct line line;

    append(dst, first->at, first->length);
    if (!next_line(&line, &next, end) || !has_prefix(&line, what, sizeof what - 1))
        return;
    append(dst, line.at, line.length);
    *data = next;
}

/* Writes a frame of faulthandler, `"a.py", line 4 in step`, as a traceback has it: with a second
 * comma. */
static void append_frame(char *dst, const struct line *line)
{
    static const char in[] = " in ";
    char frame[FRAME_MAX_BYTES];
    const char *at = memrchr(line->at, '"', line->length);
    const size_t length = line->length;
    const char *name = at ? find(at, (size_t)(line->at + length - at), in) : NULL;

    if (!name || length + 2 > sizeof frame)
        return;
    (void)ct_format(frame, sizeof frame, "%.*s,%.*s", (int)(name - line->at), line->at,
                    (int)(line->at + length - name), name);
    append(dst, frame, strlen(frame));
}

/* Copies faulthandler's stack of the thread that got the signal, in the order and form of a
 * traceback: the innermost frame last, then `Fatal Python error: Segmentation fault`. False: no
 * stack. */
static bool copy_fatal(char *dst, const char *error, const char **data, const char *end)
{
    static const char head[] = "Traceback (most recent call last):";
    struct line frames[FATAL_FRAMES_MAX];
    struct line line = {0};
    int count = 0;

    while (next_line(&line, data, end) && !is_line(&line, current_thread, recent_first))
        if (find(line.at, line.length, fatal))
            return false;
    if (!is_line(&line, current_thread, recent_first))
        return false;
    for (const char *next = *data;
         count < FATAL_FRAMES_MAX && next_line(&frames[count], &next, end) &&
         has_prefix(&frames[count], frame_mark, sizeof frame_mark - 1);
         count++)
        *data = next;
    dst[0] = '\0';
    append(dst, head, sizeof head - 1);
    while (count-- > 0)
        append_frame(dst, &frames[count]);
    append(dst, error, strcspn(error, "\r\n"));
    return true;
}

bool traceback_find(char *dst, const char *data, size_t length, size_t after_max)
{
    const char *const end = data + length;
    const char *last = NULL;       /* behind the last one */
    const char *behind_cxx = NULL; /* cxx_line; NULL: the last one was another kind */
    bool is_fatal = false;
    struct line line, cxx_line = {0};

    while (next_line(&line, &data, end)) {
        const char *headline = find(line.at, line.length, python);
        const char *error = find(line.at, line.length, fatal);
        const char *behind = data;

        if (error && copy_fatal(dst, error, &behind, end)) {
            last = data = behind;
            is_fatal = true;
            if (behind_cxx && line.at - behind_cxx <= CXX_NEAR_BYTES &&
                find(line.at, line.length, aborted))
                append_cxx(dst, &cxx_line, &behind_cxx, end);
            behind_cxx = NULL;
        } else if (headline && copy_python(dst, headline, &line, &behind, end)) {
            last = data = behind;
            is_fatal = false;
            behind_cxx = NULL;
        } else if (!headline && (find(line.at, line.length, cxx) ||
                                 find(line.at, line.length, assertion))) {
            cxx_line = line;
            behind_cxx = data;
            dst[0] = '\0';
            append_cxx(dst, &line, &data, end);
            last = data;
            is_fatal = false;
        }
    }
    return last && (is_fatal || (size_t)(end - last) <= after_max);
}

/* A line that faulthandler writes below "Fatal Python error: ". */
static bool is_of_dump(const struct line *line)
{
    static const char *const prefixes[] = {frame_mark,
                                           "  Binary file \"",
                                           "  <no Python frame>",
                                           "  <cannot get ",
                                           "  ...",
                                           current_thread,
                                           "Thread 0x",
                                           "Current thread's C stack trace ",
                                           "Extension modules: "};

    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (has_prefix(line, prefixes[i], strlen(prefixes[i])))
            return true;
    return line->length == 0;
}

size_t traceback_cut_dump(const char *data, size_t length)
{
    const char *const end = data + length;
    const char *at = data, *behind = data;
    bool is_fatal = false;
    struct line line;

    while (next_line(&line, &at, end))
        if (!is_of_dump(&line)) {
            behind = at;
            is_fatal = find(line.at, line.length, fatal);
        }
    return is_fatal ? (size_t)(behind - data) : length;
}

/* ---- Reading it -------------------------------------------------------------------------- */

const char *traceback_find_last(const char *text, const char *words)
{
    const char *found = NULL;

    for (const char *at = text; (at = strstr(at, words)); at++)
        found = at;
    return found;
}

static void copy_line(char *dst, size_t size, const char *line)
{
    (void)ct_format(dst, size, "%.*s", (int)strcspn(line, "\n"),
                    line); /* cut is fine */
}

/* The type that C++ threw, with its what(). */
static void read_cxx(char *dst, size_t size, const char *text)
{
    const char *type = traceback_find_last(text, cxx);
    const char *words = strstr(type, what);
    const int length = (int)strcspn(type + sizeof cxx - 1, "'\n");

    type += sizeof cxx - 1;
    if (words)
        words += sizeof what - 1;
    (void)ct_format(dst, size, "%.*s%s%.*s", length, type, words ? ": " : "",
                    words ? (int)strcspn(words, "\n") : 0, words ? words : "");
}

static void read_assertion(char *dst, size_t size, const char *text)
{
    const char *at = traceback_find_last(text, assertion);

    while (at > text && at[-1] != '\n')
        at--;
    copy_line(dst, size, at);
}

/* An exception of Python may quote one. */
static bool ends_with_assertion(const char *text)
{
    const char *at = traceback_find_last(text, assertion);
    const char *abort_line = traceback_find_last(text, aborted);

    return at &&
           (!traceback_find_last(text, python) || (abort_line && abort_line < at));
}

/* The first line behind the frames that is not indented. A SyntaxError has a frame, no headline. */
static void read_python(char *dst, size_t size, const char *text)
{
    const char *at = traceback_find_last(text, python);

    for (at = at ? at : traceback_find_last(text, frame_mark);
         at && (at = strchr(at, '\n'));)
        if (*++at != ' ' && *at != '\n' && *at) {
            copy_line(dst, size, at);
            return;
        }
}

bool traceback_is_library(const char *frame)
{
    static const char *const places[] = {"/site-packages/", "/dist-packages/",
                                         "/lib/python", "/lib64/python", "<frozen "};
    const size_t length = strcspn(frame, "\"");

    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (find(frame, length, places[i]))
            return true;
    return false;
}

/* "/job/train.py", line 4, in step: as it stands in the text, to "in /job/train.py, line 4, ...". */
static bool add_frame(struct ct_failure *failure, const char *frame, bool is_innermost)
{
    char where[FRAME_MAX_BYTES];
    const char *end;

    if (strcspn(frame, "\n") >= sizeof where)
        return false;
    copy_line(where, sizeof where, frame);
    if (!(end = strstr(where, "\", line ")))
        return false;
    facts_add(failure, CT_FACT_RAISED, "%s %.*s, %s",
              is_innermost ? "in" : "in a library, called in", (int)(end - where),
              where, end + 3);
    return true;
}

static void add_raised(struct ct_failure *failure, const char *text)
{
    const char *begin = traceback_find_last(text, python);
    const char *innermost = NULL, *own = NULL;

    for (const char *at = begin ? begin : text; (at = strstr(at, frame_mark));) {
        at += sizeof frame_mark - 1;
        innermost = at;
        if (!traceback_is_library(at))
            own = at;
    }
    if (innermost)
        (void)add_frame(failure, own ? own : innermost, !own || own == innermost);
}

void traceback_explain(struct ct_failure *failure, const char *text,
                       const char *exception)
{
    char *dst = failure->exception;
    const size_t size = sizeof failure->exception;

    if (exception)
        copy_line(dst, size, exception);
    else if (traceback_find_last(text, cxx))
        read_cxx(dst, size, text);
    else if (ends_with_assertion(text))
        read_assertion(dst, size, text);
    else
        read_python(dst, size, text);
    for (char *p = dst; *p; p++)
        if ((unsigned char)*p < ' ')
            *p = ' ';
    add_raised(failure, text);
}
