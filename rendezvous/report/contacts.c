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

static size_t find_address(const struct contacts *contacts, const char *address)
{
    size_t i = 0;

    while (i < contacts->count && strcmp(contacts->list[i].address, address) != 0)
        i++;
    return i;
}

/* Where to note it; CONTACTS_MAX: no room. */
static size_t find_place(const struct contacts *contacts, const char *host,
                         const char *address)
{
    size_t at = address ? find_address(contacts, address) : find(contacts, host);

    for (size_t i = 0; at == CONTACTS_MAX && !address && i < CONTACTS_MAX; i++)
        if (contacts->list[i].address[0])
            at = i;
    return at;
}

/* A client may send any bytes as its name. */
static void copy_printable(char *dst, size_t size, const char *text)
{
    (void)ct_copy(dst, size, text); /* cut is fine */
    for (char *at = dst; *at; at++)
        if (!isprint((unsigned char)*at))
            *at = '?';
}

bool contacts_has_room(const struct contacts *contacts, const char *host)
{
    return contacts->count < CONTACTS_MAX || contacts_find(contacts, host);
}

void contacts_note(struct contacts *contacts, const char *host, const char *address,
                   const char *why, bool is_explained, uint64_t now_ms)
{
    struct contact *contact;
    char name[CT_HOST_MAX];
    size_t at;

    copy_printable(name, sizeof name, host);
    at = find_place(contacts, name, address);
    contacts->more += at == CONTACTS_MAX || (!address && at < contacts->count &&
                                             contacts->list[at].address[0]);
    if (at == CONTACTS_MAX)
        return;
    contact = &contacts->list[at];
    contacts->count += at == contacts->count;
    memcpy(contact->host, name, sizeof name);
    (void)ct_copy(contact->address, sizeof contact->address, address ? address : "");
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
