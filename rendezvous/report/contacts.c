/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/report/contacts.h"

#include <ctype.h>

#include "worker_sdk/base/str.h"

static size_t find(const struct contacts *contacts, const char *host)
{
    size_t i = 0;

    while (i < contacts->count && strcmp(contacts->list[i].host, host) != 0)
        i++;
    return i;
}

/* A client may send any bytes as its name. */
static void copy_printable(char *dst, size_t size, const char *text)
{
    (void)ct_copy(dst, size, text); /* cut is fine */
    for (char *at = dst; *at; at++)
        if (!isprint((unsigned char)*at))
            *at = '?';
}

void contacts_note(struct contacts *contacts, const char *host, const char *why,
                   bool is_explained, uint64_t now_ms)
{
    struct contact *contact;
    char name[CT_HOST_MAX];
    size_t at;

    copy_printable(name, sizeof name, host);
    if ((at = find(contacts, name)) == CONTACTS_MAX) {
        contacts->more++;
        return;
    }
    contact = &contacts->list[at];
    contacts->count += at == contacts->count;
    memcpy(contact->host, name, sizeof name);
    copy_printable(contact->why, sizeof contact->why, why);
    contact->at_ms = now_ms;
    contact->is_explained = is_explained;
}

void contacts_remove(struct contacts *contacts, const char *host)
{
    const size_t at = find(contacts, host);

    if (at == contacts->count)
        return;
    contacts->count--;
    memmove(&contacts->list[at], &contacts->list[at + 1],
            (contacts->count - at) * sizeof *contacts->list);
}

const struct contact *contacts_find(const struct contacts *contacts, const char *host)
{
    const size_t at = find(contacts, host);

    return at < contacts->count ? &contacts->list[at] : NULL;
}

bool contacts_is_same_host(const char *a, const char *b)
{
    const size_t length = strcspn(a, ".");

    if (length != strcspn(b, ".") || strncmp(a, b, length) != 0)
        return false;
    return !a[length] || !b[length] || strcmp(a, b) == 0;
}
