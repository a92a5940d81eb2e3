/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/http.h"

#include <stdlib.h>
#include <string.h>

#include "rendezvous/limits.h"
#include "rendezvous/status.h"
#include "worker_sdk/base/alloc.h"

struct http_client {
    const struct dispatch *dispatch;
    struct ct_buf in;
};

static void reply(struct conn *conn, const char *status, const char *type,
                  const char *body)
{
    int rc;

    conn->own_out.max = HTTP_REPLY_MAX_BYTES;
    rc = ct_buf_printf(conn->out,
                       "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
                       "Connection: close\r\n\r\n",
                       status, type, strlen(body));
    if (rc < 0 || ct_buf_append(conn->out, body, strlen(body)) < 0) {
        conn_close(conn, "the reply is too long");
        return;
    }
    conn_finish(conn);
}

static void reply_metrics(struct conn *conn, const struct dispatch *dispatch)
{
    struct ct_buf page;

    ct_buf_init(&page, HTTP_REPLY_MAX_BYTES);
    if (metrics_format(&page, dispatch) < 0 || ct_buf_append(&page, "", 1) < 0)
        reply(conn, "503 Service Unavailable", "text/plain", "out of memory\n");
    else
        reply(conn, "200 OK", "text/plain; version=0.0.4",
              (const char *)ct_buf_data(&page));
    ct_buf_deinit(&page);
}

static bool is_path(const struct ct_buf *in, const char *request)
{
    size_t length = strlen(request);

    return ct_buf_length(in) >= length && memcmp(ct_buf_data(in), request, length) == 0;
}

static void answer(struct conn *conn, const struct http_client *client)
{
    char *text;

    if (is_path(&client->in, "GET /healthz ")) {
        reply(conn, "200 OK", "text/plain", "ok\n");
    } else if (is_path(&client->in, "GET /status ")) {
        if ((text = status_format(client->dispatch)))
            reply(conn, "200 OK", "application/json", text);
        else
            reply(conn, "503 Service Unavailable", "text/plain", "out of memory\n");
        free(text);
    } else if (is_path(&client->in, "GET /metrics ")) {
        reply_metrics(conn, client->dispatch);
    } else {
        reply(conn, "404 Not Found", "text/plain",
              "there is /healthz, /status and /metrics\n");
    }
}

static void on_bytes(struct conn *conn, const uint8_t *data, size_t length)
{
    struct http_client *client = conn->context;

    if (ct_buf_append(&client->in, data, length) < 0)
        reply(conn, "431 Request Header Fields Too Large", "text/plain", "too long\n");
    else if (memmem(ct_buf_data(&client->in), ct_buf_length(&client->in), "\r\n\r\n",
                    4))
        answer(conn, client);
}

static void on_close(struct conn *conn, const char *reason)
{
    struct http_client *client = conn->context;

    (void)reason;
    ct_buf_deinit(&client->in);
    free(client);
}

void http_take(const struct dispatch *dispatch, struct conn *conn, const uint8_t *data,
               size_t length)
{
    static const struct conn_user http_conn = {
        .kind = "http", .on_bytes = on_bytes, .on_close = on_close};
    struct http_client *client = ct_zalloc(sizeof *client);

    if (!client) {
        conn_close(conn, "out of memory");
        return;
    }
    client->dispatch = dispatch;
    ct_buf_init(&client->in, HTTP_REQUEST_MAX_BYTES);
    conn->user = &http_conn;
    conn->context = client;
    conn_set_deadline(conn);
    on_bytes(conn, data, length);
}
