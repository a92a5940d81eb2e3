/* SPDX-License-Identifier: Apache-2.0 */
/* Which nodes are absent: their names while the run waits, and the table of E_JOIN_TIMEOUT. */
#include "rendezvous/round/round_private.h"

#include <errno.h>

#include "worker_sdk/base/str.h"

enum {
    MORE_MAX_BYTES = 64, /* "and 12 more", after the rows */
    TASKS_MAX_BYTES = 64 /* "1 of 2 tasks joined" */
};

void round_note_absent(struct round *round, const char *host, const char *why,
                       bool is_explained, uint64_t at_ms, uint64_t now_ms)
{
    contacts_note(&round->contacts, host, NULL, why, is_explained, at_ms);
    if (round->state == ROUND_FORMING)
        round_announce(round, now_ms);
}

void round_note_refused(struct round *round, const char *host, const char *address,
                        int code, uint64_t now_ms)
{
    static const struct {
        int code;
        const char *text;
    } reasons[] = {
        {CTRUN_E_AUTH, "its user, token or proof was refused"},
        {CTRUN_E_VERSION, "it has another version of the protocol"},
        {CTRUN_E_WRONG_RUN, "it has another run id"},
        {CTRUN_E_FINGERPRINT, "it was started with other settings"},
        {CTRUN_E_OTHER_JOB, "it belongs to another job"},
        {-EXFULL, "the rendezvous server is full"},
    };
    char why[CONTACTS_WHY_MAX];
    size_t i = 0;

    /* Such an agent tries again, and several agents of a host have one name: no count of them would
     * be right. */
    round->contacts.has_uncounted |= code == -EXFULL;
    if (code == -EXFULL && !contacts_has_room(&round->contacts, host))
        return;
    while (i < sizeof reasons / sizeof *reasons && reasons[i].code != code)
        i++;
    (void)ct_format(why, sizeof why, "refused with %s%s%s", ct_error_name(code),
                    i < sizeof reasons / sizeof *reasons ? ": " : "",
                    i < sizeof reasons / sizeof *reasons ? reasons[i].text : "");
    contacts_note(&round->contacts, host, address, why, true, now_ms);
    if (round->state == ROUND_FORMING)
        round_announce(round, now_ms);
}

static bool is_here(const struct round *round, const char *host)
{
    member_for_each(member, &round->members)
        if (contacts_is_same_host(member->link.host, host))
            return true;
    return false;
}

/* How many hosts are expected by name. 0 also where none that is here has such a name: then the batch system does
 * not name hosts as they name themselves (NodeName of Slurm), and it is not known which are absent. */
static size_t count_expected(const struct round *round)
{
    const struct round_settings *settings = &round->settings;

    for (size_t i = 0; i < settings->expected_count; i++)
        if (is_here(round, settings->expected[i]))
            return settings->expected_count;
    return round->members.count > 0 ? 0 : settings->expected_count;
}

/* True if an agent of this host was here, or tried to be, and is not now. */
static bool is_away(const struct round *round, const char *host)
{
    for (size_t i = 0; i < round->contacts.count; i++)
        if (contacts_is_same_host(round->contacts.list[i].host, host))
            return true;
    for (size_t i = 0; i < round->missing.count; i++)
        if (contacts_is_same_host(round->missing.hosts[i], host))
            return true;
    return false;
}

/* True if the batch system named this host, and no node of that name has ever connected. */
static bool never_came(const struct round *round, const char *host)
{
    return !is_away(round, host) && !is_here(round, host);
}

/* "1 of 2 tasks joined", of the expected host with this index. False: all have, or none has, or
 * is_away() is the better reason. */
static bool format_tasks(const struct round *round, size_t index, char *dst,
                         size_t size)
{
    const struct round_settings *settings = &round->settings;
    const char *host = settings->expected[index];
    const size_t tasks = settings->expected_tasks
                             ? (size_t)settings->expected_tasks[index]
                             : 0;
    size_t joined = 0;

    member_for_each(member, &round->members) {
        if (joined == tasks)
            return false;
        joined += member->state == MEMBER_READY &&
                  contacts_is_same_host(member->link.host, host);
    }
    (void)ct_format(dst, size, "%zu of %zu tasks joined", joined, tasks);
    return joined > 0 && joined < tasks && !is_away(round, host);
}

/* ---- While the run waits ------------------------------------------------------------------- */

static void add_name(char *dst, size_t size, const char *name, const char *why)
{
    (void)ct_append_item(dst, size, ", ", "%s%s%s%s", name, why ? " (" : "",
                         why ? why : "", why ? ")" : ""); /* cut is fine */
}

static void add_explained(char *dst, size_t size, const struct round *round,
                          bool is_proven)
{
    for (size_t i = 0; i < round->contacts.count; i++) {
        const struct contact *contact = &round->contacts.list[i];

        if (contact->is_explained && is_proven == !contact->address[0])
            add_name(dst, size, contact->host, contact->why);
    }
}

/* Clients that have proven nothing come last: they cannot push out the nodes of the run. */
void round_format_absent(const struct round *round, char *dst, size_t size)
{
    const size_t expected = count_expected(round);
    struct host_list away = round->missing;
    struct host_list unknown = {0};
    char names[CT_MISSING_MAX];
    char tasks[TASKS_MAX_BYTES];

    for (size_t i = 0; i < round->members.count && round->missing_survivors > 0; i++)
        if (round_is_missing_survivor(round->members.list[i]))
            host_list_add(&away, round->members.list[i]->link.host);
    host_list_format(&away, dst, size);
    add_explained(dst, size, round, true);
    for (size_t i = 0; i < expected; i++)
        if (format_tasks(round, i, tasks, sizeof tasks))
            add_name(dst, size, round->settings.expected[i], tasks);
        else if (never_came(round, round->settings.expected[i]))
            host_list_add(&unknown, round->settings.expected[i]);
    host_list_format(&unknown, names, sizeof names);
    if (names[0])
        add_name(dst, size, names, "never connected");
    add_explained(dst, size, round, false);
}

/* ---- The table ---------------------------------------------------------------------------- */

/* "node3: never connected". False: no room. */
static bool add_row(struct ct_failure *failure, const char *host, const char *what)
{
    char text[CT_FACTS_MAX];

    return ct_format(text, sizeof text, "%s: %s", host, what) >= 0 &&
           strlen(text) + failure->facts.used + MORE_MAX_BYTES < CT_FACTS_MAX &&
           ct_facts_add(&failure->facts, CT_FACT_MISSING, text);
}

static void describe_contact(char *dst, size_t size, const struct contact *contact,
                             uint64_t now_ms)
{
    if (contact)
        (void)ct_format(dst, size, "last contact %.1f s ago: %s",
                        (double)(now_ms - contact->at_ms) / 1000,
                        contact->why); /* cut is fine */
    else
        (void)ct_copy(dst, size, "connected, but has not joined this round");
}

struct table {
    struct ct_failure *failure;
    size_t rows, left_out;
};

/* After the first row that does not fit all others are only counted: the table has the first
 * rows. */
static void add(struct table *table, const char *host, const char *what)
{
    if (table->left_out == 0 && add_row(table->failure, host, what))
        table->rows++;
    else
        table->left_out++;
}

static void add_contacts(struct table *table, const struct round *round, bool is_proven,
                         uint64_t now_ms)
{
    char what[CONTACTS_WHY_MAX + 48];

    for (size_t i = 0; i < round->contacts.count; i++) {
        const struct contact *contact = &round->contacts.list[i];
        bool is_listed = is_proven != !contact->address[0];

        for (size_t k = 0; k < round->missing.count && !is_listed; k++)
            is_listed = strcmp(round->missing.hosts[k], contact->host) == 0;
        describe_contact(what, sizeof what, contact, now_ms);
        if (!is_listed)
            add(table, contact->host, what);
    }
}

/* As in round_format_absent(). */
static void add_rows(struct table *table, const struct round *round, uint64_t now_ms)
{
    const size_t expected = count_expected(round);
    char what[CONTACTS_WHY_MAX + 48];

    for (size_t i = 0; i < round->missing.count; i++) {
        describe_contact(what, sizeof what,
                         contacts_find(&round->contacts, round->missing.hosts[i]),
                         now_ms);
        add(table, round->missing.hosts[i], what);
    }
    add_contacts(table, round, true, now_ms);
    for (size_t i = 0; i < expected; i++)
        if (format_tasks(round, i, what, sizeof what))
            add(table, round->settings.expected[i], what);
        else if (never_came(round, round->settings.expected[i]))
            add(table, round->settings.expected[i], "never connected");
    add_contacts(table, round, false, now_ms);
}

/* Adds the number of nodes (or tasks) whose names are not known. */
static void add_unknown(struct table *table, const struct round *round)
{
    const size_t needed = round->settings.min_nodes;
    const size_t known = round->counts[MEMBER_READY] + table->rows + table->left_out +
                         round->contacts.more + round->missing.more;
    const size_t more = table->left_out + round->contacts.more + round->missing.more;
    char text[MORE_MAX_BYTES];

    if (more > 0) {
        (void)ct_format(text, sizeof text, "and %zu more", more);
        (void)ct_facts_add(&table->failure->facts, CT_FACT_MISSING, text);
    } else if (known < needed && count_expected(round) == 0) {
        (void)ct_format(text, sizeof text, "%zu %s%s", needed - known,
                        round->settings.expected_tasks ? "task" : "node",
                        needed - known == 1 ? "" : "s");
        /* After a world that had enough nodes: several nodes of one host share a name. */
        (void)add_row(table->failure, text,
                      round->generation > 0 || round->contacts.has_uncounted
                          ? "did not join this round (their names are not known here)"
                          : "never connected (their names are not known here)");
    }
}

void round_fill_timeout(struct round *round, struct ct_failure *failure,
                        uint64_t now_ms)
{
    struct table table = {.failure = failure};
    struct host_list joined = {0};
    char here[CT_FACTS_MAX / 3];

    member_for_each(member, &round->members) {
        if (member->state == MEMBER_READY)
            host_list_add(&joined, member->link.host);
        else if (member->state == MEMBER_CONNECTED)
            host_list_add(&round->missing, member->link.host);
    }
    host_list_format(&joined, here, sizeof here);
    (void)ct_format(failure->text, sizeof failure->text,
                    "%zu of %u %s joined in %.1f s", round->counts[MEMBER_READY],
                    round->settings.min_nodes,
                    round->settings.expected_tasks ? "tasks" : "nodes",
                    (double)round->settings.join_timeout_ms / 1000);
    (void)ct_facts_add(&failure->facts, CT_FACT_JOINED, here[0] ? here : "none");
    add_rows(&table, round, now_ms);
    add_unknown(&table, round);
}
