/* SPDX-License-Identifier: Apache-2.0 */
/* Redirections, which are no words, and here-documents. */
#include "launcher/shell_reader.h"

#include <string.h>

int shell_redirection_read(struct shell_reader *r)
{
    const char c = shell_peek(r, 0);
    bool is_document = false;
    bool has_tabs = false;
    size_t start;
    int rc;

    r->at++;
    if (c == '<' && shell_peek(r, 0) == '<') {
        r->at++;
        is_document = shell_peek(r, 0) != '<';
        has_tabs = is_document && shell_peek(r, 0) == '-';
        r->at += !is_document || has_tabs;
    } else if (shell_peek(r, 0) && strchr("<>&|", shell_peek(r, 0))) {
        r->at++;
    }
    shell_skip_blanks(r);
    start = r->at;
    rc = shell_skip_word(r);
    if (rc < 0 || !is_document)
        return rc;
    if (r->at == start || r->document_count == SHELL_DOCUMENTS_MAX)
        return shell_fail_open(r, start, "<<");
    r->documents[r->document_count++] = (struct shell_document){{start, r->at},
                                                                has_tabs};
    return 0;
}

/* The mark without its quotes is the line. */
static bool ends_document(const struct shell_reader *r,
                          const struct shell_document *document, size_t line,
                          size_t length)
{
    size_t at = 0;

    while (document->has_tabs && at < length && r->text[line + at] == '\t')
        at++;
    for (size_t i = document->mark.start; i < document->mark.end; i++) {
        if (strchr("'\"\\", r->text[i]))
            continue;
        if (at == length || r->text[line + at] != r->text[i])
            return false;
        at++;
    }
    return at == length;
}

int shell_redirection_skip_documents(struct shell_reader *r)
{
    for (int i = 0; i < r->document_count; i++) {
        bool is_over = false;

        while (!is_over) {
            const size_t line = r->at;

            if (line >= r->end)
                return shell_fail_open(r, r->documents[i].mark.start,
                                       "the here-document");
            while (r->at < r->end && r->text[r->at] != '\n')
                r->at++;
            is_over = ends_document(r, &r->documents[i], line, r->at - line);
            r->at += r->at < r->end;
        }
    }
    r->document_count = 0;
    return 0;
}
