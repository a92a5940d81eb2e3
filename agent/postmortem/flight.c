/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/postmortem/flight.h"

#include <ctype.h>
#include <errno.h>

#include "worker_sdk/base/dtype.h"
#include "worker_sdk/base/str.h"

/* ---- Decode -------------------------------------------------------------------------- */

/* The name goes into files for people and programs: only letters, digits and characters usual in
 * names stay. */
static void take_name(char *dst, size_t size, const char *src, size_t length)
{
    size_t used = 0;

    for (size_t i = 0; i < length && src[i] && used + 1 < size; i++)
        dst[used++] = isalnum((unsigned char)src[i]) || strchr("_-./~", src[i]) ? src[i]
                                                                                : '?';
    dst[used] = '\0';
}

static void decode_groups(const struct ct_flight *raw, struct flight *out,
                          int of[CT_FLIGHT_GROUPS])
{
    for (int i = 0; i < CT_FLIGHT_GROUPS; i++) {
        const struct ct_flight_group *group = &raw->group[i];
        struct flight_group *to = &out->groups[out->group_count];

        of[i] = -1;
        if (group->id == 0 || (group->id - 1) % CT_FLIGHT_GROUPS != (uint32_t)i)
            continue;
        take_name(to->name, sizeof to->name, group->name, sizeof group->name);
        to->size = group->size;
        of[i] = out->group_count++;
    }
}

static int find_group(const struct ct_flight *raw, const int of[CT_FLIGHT_GROUPS],
                      uint32_t id)
{
    const uint32_t slot = (id - 1) % CT_FLIGHT_GROUPS;

    return id > 0 && raw->group[slot].id == id ? of[slot] : -1;
}

static void decode_call(const struct ct_flight_entry *entry, struct flight_call *call)
{
    call->sequence = entry->sequence;
    call->count = entry->count;
    call->begin_ns = entry->begin_ns;
    call->end_ns = entry->end_ns;
    if (call->end_ns != 0 && call->end_ns < call->begin_ns)
        call->end_ns = call->begin_ns;
    call->result = entry->result;
    take_name(call->name, sizeof call->name, entry->name, sizeof entry->name);
    (void)ct_copy(call->dtype, sizeof call->dtype, ct_dtype_name(entry->dtype));
}

int flight_decode(const void *bytes, size_t size, struct flight *out)
{
    const struct ct_flight *raw = bytes;
    int of[CT_FLIGHT_GROUPS];
    uint64_t first;

    *out = (struct flight){.rank = -1};
    if (size < sizeof *raw || raw->magic != CT_FLIGHT_MAGIC ||
        raw->version != CT_FLIGHT_VERSION)
        return -EBADMSG;
    decode_groups(raw, out, of);
    out->total = raw->calls;
    first = out->total > CT_FLIGHT_ENTRIES ? out->total - CT_FLIGHT_ENTRIES : 0;
    for (uint64_t n = first; n < out->total; n++) {
        const struct ct_flight_entry *entry = &raw->entry[n % CT_FLIGHT_ENTRIES];
        struct flight_call *call = &out->calls[out->call_count];

        if (entry->number != n + 1)
            continue; /* the entry was being written */
        decode_call(entry, call);
        call->group = find_group(raw, of, entry->group);
        out->call_count++;
    }
    return 0;
}

/* ---- Text and trace ------------------------------------------------------------------ */

static double seconds(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) / 1e9 : 0;
}

static const char *group_name(const struct flight *flight,
                              const struct flight_call *call)
{
    return call->group >= 0 ? flight->groups[call->group].name : "?";
}

int flight_format(struct ct_buf *out, const struct flight *flight, uint64_t now_ns)
{
    int rc = ct_buf_printf(out, "rank %d: the last %d of %llu calls\n", flight->rank,
                           flight->call_count, (unsigned long long)flight->total);

    for (int i = 0; i < flight->call_count && rc >= 0; i++) {
        const struct flight_call *call = &flight->calls[i];
        char state[48] = "under way";

        if (call->end_ns && call->result < 0)
            (void)ct_format(state, sizeof state, "failed %d", call->result);
        else if (call->end_ns)
            (void)ct_format(state, sizeof state, "%s",
                            call->result ? "queued on the device" : "done");
        rc = ct_buf_printf(
            out, "  %12.6f s ago  %-14s %8llu  %10llu %-4s  %12.6f s  %s  %s\n",
            seconds(call->begin_ns, now_ns), call->name,
            (unsigned long long)call->sequence, (unsigned long long)call->count,
            call->dtype, seconds(call->begin_ns, call->end_ns ? call->end_ns : now_ns),
            state, group_name(flight, call));
    }
    return rc;
}

int flight_begin_trace(struct ct_buf *out)
{
    return ct_buf_printf(out, "{\"traceEvents\":[\n");
}

int flight_add_trace(struct ct_buf *out, const struct flight *flight, uint64_t now_ns,
                     bool is_first)
{
    int rc = ct_buf_printf(out,
                           "%s{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,"
                           "\"args\":{\"name\":\"rank %d\"}}",
                           is_first ? "" : ",\n", flight->rank, flight->rank);

    for (int i = 0; i < flight->call_count && rc >= 0; i++) {
        const struct flight_call *call = &flight->calls[i];
        const uint64_t end_ns = call->end_ns ? call->end_ns : now_ns;

        rc = ct_buf_printf(
            out,
            ",\n{\"ph\":\"X\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,"
            "\"dur\":%.3f,\"args\":{\"collective\":%llu,\"count\":%llu,\"dtype\":\"%"
            "s\","
            "\"group\":\"%s\",\"result\":%d,\"is_over\":%s}}",
            call->name, flight->rank, call->group + 1, (double)call->begin_ns / 1e3,
            seconds(call->begin_ns, end_ns) * 1e6, (unsigned long long)call->sequence,
            (unsigned long long)call->count, call->dtype, group_name(flight, call),
            call->result, call->end_ns ? "true" : "false");
    }
    return rc;
}

int flight_end_trace(struct ct_buf *out)
{
    return ct_buf_printf(out, "\n]}\n");
}

/* ---- How far ranks are --------------------------------------------------------------- */

bool flight_find_place(struct flight_place *out, const struct flight *flight)
{
    int group = -1;

    *out = (struct flight_place){.rank = flight->rank};
    for (int i = flight->call_count - 1; i >= 0 && group < 0; i--)
        if (flight->calls[i].sequence > 0)
            group = flight->calls[i].group;
    if (group < 0)
        return false;
    (void)ct_copy(out->group, sizeof out->group, flight->groups[group].name);
    for (int i = 0; i < flight->call_count; i++) {
        const struct flight_call *call = &flight->calls[i];

        if (call->group != group || call->sequence == 0)
            continue;
        if (!call->end_ns && out->in.sequence == 0)
            out->in = *call;
        if (call->end_ns && call->result >= 0)
            out->left = *call;
        if (call->result < 0 && out->failed.sequence <= out->left.sequence)
            out->failed = *call;
    }
    return true;
}

static bool stand_alike(const struct flight_place *a, const struct flight_place *b)
{
    return strcmp(a->group, b->group) == 0 && a->in.sequence == b->in.sequence &&
           (a->in.sequence > 0 || (a->left.sequence == b->left.sequence &&
                                   a->failed.sequence == b->failed.sequence)) &&
           strcmp(a->in.name, b->in.name) == 0 && a->in.count == b->in.count;
}

/* The highest collective of that group that any of the ranks is in. */
static const struct flight_call *find_front(const struct flight_place *places,
                                            int count, const char *group)
{
    const struct flight_call *front = NULL;

    for (int i = 0; i < count; i++)
        if (strcmp(places[i].group, group) == 0 && places[i].in.sequence > 0 &&
            (!front || places[i].in.sequence > front->sequence))
            front = &places[i].in;
    return front;
}

/* "ranks 0, 1, 3" */
static void name_ranks(char line[FLIGHT_LINE_MAX], const struct flight_place *places,
                       int count, int first)
{
    int alike = 0;

    for (int i = first; i < count; i++)
        alike += stand_alike(&places[i], &places[first]);
    (void)ct_format(line, FLIGHT_LINE_MAX, "rank%s", alike > 1 ? "s" : "");
    for (int i = first, shown = 0; i < count && shown < 9; i++) {
        if (!stand_alike(&places[i], &places[first]))
            continue;
        if (shown++ == 8)
            (void)ct_append(line, FLIGHT_LINE_MAX, " and %d more", alike - 8);
        else
            (void)ct_append(line, FLIGHT_LINE_MAX, "%s%d", shown > 1 ? ", " : " ",
                            places[i].rank);
    }
}

/* Appends the place behind the names of the ranks. */
static void add_place(char line[FLIGHT_LINE_MAX], const struct flight_place *place,
                      const struct flight_call *front, uint64_t now_ns)
{
    if (place->in.sequence > 0) {
        (void)ct_append(line, FLIGHT_LINE_MAX, ": in %s %llu (%llu %s) for %.1f s",
                        place->in.name, (unsigned long long)place->in.sequence,
                        (unsigned long long)place->in.count, place->in.dtype,
                        seconds(place->in.begin_ns, now_ns));
        return;
    }
    if (place->failed.sequence > place->left.sequence) {
        (void)ct_append(line, FLIGHT_LINE_MAX, ": failed in %s %llu %.1f s ago",
                        place->failed.name, (unsigned long long)place->failed.sequence,
                        seconds(place->failed.end_ns, now_ns));
        return;
    }
    if (place->left.sequence == 0)
        (void)ct_append(line, FLIGHT_LINE_MAX, ": left no collective yet");
    else
        (void)ct_append(line, FLIGHT_LINE_MAX, ": left %s %llu %.1f s ago",
                        place->left.name, (unsigned long long)place->left.sequence,
                        seconds(place->left.end_ns, now_ns));
    if (front && front->sequence > place->left.sequence)
        (void)ct_append(line, FLIGHT_LINE_MAX, ", has not entered %s %llu", front->name,
                        (unsigned long long)front->sequence);
}

int flight_format_places(char lines[FLIGHT_LINES_MAX][FLIGHT_LINE_MAX],
                         const struct flight_place *places, int count, uint64_t now_ns)
{
    int used = 0;

    for (int i = 0; i < count && used < FLIGHT_LINES_MAX; i++) {
        bool is_listed = false;

        for (int before = 0; before < i; before++)
            is_listed = is_listed || stand_alike(&places[before], &places[i]);
        if (is_listed)
            continue;
        name_ranks(lines[used], places, count, i);
        add_place(lines[used++], &places[i], find_front(places, count, places[i].group),
                  now_ns);
    }
    return used;
}

void flight_keep(struct flight *flight, int most)
{
    const int kept = most < 1 ? 1 : most;
    const int over = flight->call_count - kept;

    if (over <= 0)
        return;
    memmove(flight->calls, flight->calls + over,
            (size_t)kept * sizeof flight->calls[0]);
    flight->call_count = kept;
}
