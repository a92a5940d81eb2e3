/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/server/http.h"

#include <stdlib.h>
#include <string.h>

#include "rendezvous/server/server_limits.h"
#include "rendezvous/server/status.h"
#include "rendezvous/session/metrics.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"

/* A complete reply, shared by the clients that get it. */
struct http_page {
    size_t users;
    uint64_t made_ms, fresh_ms; /* how long the page is reused */
    struct ct_buf text;
    size_t body_length; /* at its end */
};

struct http_client {
    struct ct_list node; /* http->clients */
    struct http *http;
    struct conn *conn;
    struct ct_buf in;
    bool wants_head;        /* without the body */
    struct http_page *page; /* NULL: not yet */
    struct ct_buf unsent;   /* a view of its text */
};

/* ---- Pages ------------------------------------------------------------------------------- */

static void page_release(struct http_page *page)
{
    if (!page || --page->users > 0)
        return;
    ct_buf_deinit(&page->text);
    free(page);
}

static struct http_page *page_create(const char *status, const char *type,
                                     const char *body)
{
    struct http_page *page = ct_zalloc(sizeof *page);

    if (!page)
        return NULL;
    page->users = 1;
    page->body_length = strlen(body);
    ct_buf_init(&page->text, HTTP_REPLY_MAX_BYTES);
    if (ct_buf_printf(&page->text,
                      "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
                      "Connection: close\r\n\r\n",
                      status, type, page->body_length) == 0 &&
        ct_buf_append(&page->text, body, page->body_length) == 0)
        return page;
    page_release(page);
    return NULL;
}

static struct http_page *make_status(const struct dispatch *dispatch)
{
    char *text = status_format(dispatch);
    struct http_page *page = text ? page_create("200 OK", "application/json", text)
                                  : NULL;

    free(text);
    return page;
}

static struct http_page *make_metrics(const struct dispatch *dispatch)
{
    struct http_page *page = NULL;
    struct ct_buf text;

    ct_buf_init(&text, HTTP_REPLY_MAX_BYTES);
    if (metrics_format(&text, dispatch) == 0 && ct_buf_append(&text, "", 1) == 0)
        page = page_create("200 OK", "text/plain; version=0.0.4",
                           (const char *)ct_buf_data(&text));
    ct_buf_deinit(&text);
    return page;
}

/* Momentary waits for the journal are no trouble, and a server that waits to be elected has none. */
static const char *find_trouble(const struct dispatch *dispatch)
{
    const struct journal_sink *journal = dispatch->runs.journal;
    const char *why = journal && journal->why_broken
                          ? journal->why_broken(journal->context)
                          : NULL;

    if (!why && dispatch->commit && !dispatch->is_candidate &&
        ct_now_ms() >= atomic_load(&dispatch->commit->until_ms))
        why = "the lease of this server in etcd is over: its agents get no message";
    return why;
}

static struct http_page *make_health(const struct dispatch *dispatch)
{
    const char *trouble = find_trouble(dispatch);
    char text[256];

    (void)ct_format(text, sizeof text, "%s\n", trouble ? trouble : "ok"); /* fits */
    return page_create(trouble ? "503 Service Unavailable" : "200 OK", "text/plain",
                       text);
}

/* NULL: out of memory. A page is reused so long that making pages takes a tenth of the time at most. */
static struct http_page *page_get(struct http *http, enum http_path path)
{
    struct http_page *page = http->pages[path];
    const uint64_t began_ns = uv_hrtime();
    const uint64_t now_ms = began_ns / 1000000;

    if (!page || now_ms - page->made_ms >= page->fresh_ms) {
        page_release(page);
        page = path == HTTP_STATUS ? make_status(http->dispatch)
                                   : make_metrics(http->dispatch);
        http->pages[path] = page;
        if (!page)
            return NULL;
        page->made_ms = now_ms;
        page->fresh_ms = (uv_hrtime() - began_ns) * HTTP_PAGE_COST / 1000000;
        if (page->fresh_ms > HTTP_PAGE_MAX_MS)
            page->fresh_ms = HTTP_PAGE_MAX_MS;
    }
    page->users++;
    return page;
}

/* ---- Clients ----------------------------------------------------------------------------- */

/* Takes over the page. */
static void reply(struct http_client *client, struct http_page *page)
{
    if (!page)
        page = page_create("503 Service Unavailable", "text/plain", "out of memory\n");
    if (!page) {
        conn_close(client->conn, "out of memory");
        return;
    }
    client->page = page;
    client->unsent = page->text;
    if (client->wants_head)
        client->unsent.end -= page->body_length;
    client->conn->out = &client->unsent;
    conn_finish(client->conn);
}

/* Consumes `word` if the request begins with it. */
static bool take_word(struct ct_buf *in, const char *word)
{
    const size_t length = strlen(word);

    if (ct_buf_length(in) < length || memcmp(ct_buf_data(in), word, length) != 0)
        return false;
    ct_buf_consume(in, length);
    return true;
}

static void answer(struct http_client *client)
{
    client->wants_head = take_word(&client->in, "HEAD ");
    if (!client->wants_head)
        (void)take_word(&client->in, "GET "); /* other methods fit no path */
    if (take_word(&client->in, "/livez "))
        reply(client, page_create("200 OK", "text/plain", "ok\n"));
    else if (take_word(&client->in, "/healthz "))
        reply(client, make_health(client->http->dispatch));
    else if (take_word(&client->in, "/status "))
        reply(client, page_get(client->http, HTTP_STATUS));
    else if (take_word(&client->in, "/metrics "))
        reply(client, page_get(client->http, HTTP_METRICS));
    else
        reply(client, page_create("404 Not Found", "text/plain",
                                  "only /healthz, /livez, /status and /metrics are "
                                  "served\n"));
}

static void on_bytes(struct conn *conn, const uint8_t *data, size_t length)
{
    struct http_client *client = conn->context;

    if (ct_buf_append(&client->in, data, length) < 0)
        reply(client, page_create("431 Request Header Fields Too Large", "text/plain",
                                  "the request is too long\n"));
    else if (memmem(ct_buf_data(&client->in), ct_buf_length(&client->in), "\r\n\r\n",
                    4))
        answer(client);
}

/* Removes the client from the count and the list; the connection stays open until its output is
 * sent. May be called twice. */
static void leave(struct http_client *client)
{
    if (!client->http)
        return;
    client->http->count--;
    client->http = NULL;
    ct_list_remove(&client->node);
}

static void on_close(struct conn *conn, const char *reason)
{
    struct http_client *client = conn->context;

    (void)reason;
    leave(client);
    page_release(client->page);
    ct_buf_deinit(&client->in);
    free(client);
}

static void make_room(struct http *http)
{
    struct http_client *oldest = ct_list_entry(http->clients.next, struct http_client,
                                               node);

    if (http->count < HTTP_CONNS_MAX)
        return;
    leave(oldest);
    conn_turn_away(oldest->conn, REJECT_TOO_MANY);
}

void http_on_bytes(struct http *http, struct conn *conn, const uint8_t *data,
                   size_t length)
{
    static const struct conn_user http_conn = {
        .kind = "http", .on_bytes = on_bytes, .on_close = on_close};
    struct http_client *client = ct_zalloc(sizeof *client);

    if (!client) {
        conn_close(conn, "out of memory");
        return;
    }
    make_room(http);
    client->http = http;
    client->conn = conn;
    ct_buf_init(&client->in, HTTP_REQUEST_MAX_BYTES);
    ct_list_add(&http->clients, &client->node);
    http->count++;
    conn->user = &http_conn;
    conn->context = client;
    conn_set_deadline(conn);
    on_bytes(conn, data, length);
}

void http_init(struct http *http, const struct dispatch *dispatch)
{
    http->dispatch = dispatch;
    http->count = 0;
    ct_list_init(&http->clients);
}

void http_deinit(struct http *http)
{
    for (int i = 0; i < HTTP_PATHS; i++) {
        page_release(http->pages[i]);
        http->pages[i] = NULL;
    }
}
