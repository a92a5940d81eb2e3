/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/etcd/http.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "launcher/etcd/http_api.h"
#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/clock.h"
#include "worker_sdk/base/str.h"

enum {
    POLL_MS = 1000, /* the longest wait: a deadline is checked at least so often */
    FDS_MAX = 4096,
};

static struct http_api api;

struct http_client {
    CURL *easy;
    CURLM *multi;
    char *ca_file, *cert_file, *key_file;
    char why[CURL_ERROR_SIZE];
    const struct http_request *request; /* the current one */
    bool has_enough;
    /* Any thread sets it. The only field that other threads use, except `multi` for the wake-up,
     * which libcurl allows from any thread. */
    atomic_bool is_woken;
};

/* ---- The library --------------------------------------------------------------------- */

static int load(struct ctrun_error *err)
{
    static bool is_loaded;
    const int rc = is_loaded ? 0 : http_api_get(&api, err);

    if (rc < 0 || is_loaded)
        return rc;
    if (api.curl_global_init_fn(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return ct_fail(err, CTRUN_E_USAGE, "libcurl cannot be initialised");
    is_loaded = true;
    return 0;
}

/* ---- Closed on exec ------------------------------------------------------------------ */

/* First notes every open descriptor in `seen`; later makes those that are new close-on-exec.
 * Another thread may open descriptors meanwhile: all of ours are close-on-exec already, so that
 * setting the flag again changes nothing. */
static void look_at_descriptors(bool *seen, bool is_first)
{
    DIR *folder = opendir("/proc/self/fd");
    struct dirent *entry;
    uint64_t fd;

    while (folder && (entry = readdir(folder))) {
        if (ct_parse_u64(entry->d_name, 0, FDS_MAX - 1, &fd) < 0)
            continue;
        if (is_first)
            seen[fd] = true;
        else if (!seen[fd])
            (void)fcntl((int)fd, F_SETFD, FD_CLOEXEC);
    }
    if (folder)
        closedir(folder);
}

static curl_socket_t open_socket(void *context, curlsocktype purpose,
                                 struct curl_sockaddr *addr)
{
    (void)context;
    (void)purpose;
    return socket(addr->family, addr->socktype | SOCK_CLOEXEC, addr->protocol);
}

/* ---- Life ---------------------------------------------------------------------------- */

static char *copy(const char *text)
{
    return text && *text ? ct_strdup(text) : NULL;
}

static bool has(const char *text)
{
    return text && *text;
}

int http_client_open(struct http_client **out,
                     const struct http_client_options *options, struct ctrun_error *err)
{
    struct http_client *client;
    bool *seen;
    int rc = load(err);

    if (rc < 0)
        return rc;
    client = ct_zalloc(sizeof *client);
    seen = ct_zalloc_array(FDS_MAX, sizeof *seen);
    if (!client || !seen)
        goto fail;
    look_at_descriptors(seen, true);
    client->multi = api.curl_multi_init_fn();
    client->easy = api.curl_easy_init_fn();
    look_at_descriptors(seen, false); /* curl's own wake-up pair */
    client->ca_file = copy(options->ca_file);
    client->cert_file = copy(options->cert_file);
    client->key_file = copy(options->key_file);
    if (!client->multi || !client->easy || has(options->ca_file) != !!client->ca_file ||
        has(options->cert_file) != !!client->cert_file ||
        has(options->key_file) != !!client->key_file)
        goto fail;
    free(seen);
    *out = client;
    return 0;
fail:
    free(seen);
    http_client_close(client);
    return ct_fail(err, -ENOMEM, "http: out of memory");
}

void http_client_close(struct http_client *client)
{
    if (!client)
        return;
    if (client->easy)
        api.curl_easy_cleanup_fn(client->easy);
    if (client->multi)
        api.curl_multi_cleanup_fn(client->multi);
    free(client->ca_file);
    free(client->cert_file);
    free(client->key_file);
    free(client);
}

/* Any thread; the flag stays until http_client_rearm(), so that a request which begins after
 * this one ends at once as well. */
void http_client_wake(struct http_client *client)
{
    atomic_store(&client->is_woken, true);
    (void)api.curl_multi_wakeup_fn(client->multi); /* else it ends after its wait */
}

void http_client_rearm(struct http_client *client)
{
    atomic_store(&client->is_woken, false);
}

/* ---- A request ----------------------------------------------------------------------- */

static size_t take_body(char *data, size_t size, size_t count, void *context)
{
    struct http_client *client = context;
    const size_t length = size * count;

    if (client->request->on_body(client->request->context, data, length))
        return length;
    client->has_enough = true;
    return 0; /* ends the transfer */
}

/* "host:port:addr,addr" for CURLOPT_RESOLVE: curl asks no name server. */
static void format_resolve(char *dst, size_t size, const struct http_request *request)
{
    size_t used = 0;
    int n = ct_format(dst, size, "%s:%d:", request->host, request->port);

    for (int i = 0; n >= 0 && i < request->addr_count; i++) {
        char text[CT_ADDR_TEXT_MAX];

        used += (size_t)n;
        ct_addr_format_host(text, &request->addrs[i]);
        n = ct_format(dst + used, size - used, strchr(text, ':') ? "%s[%s]" : "%s%s",
                      i ? "," : "", text);
    }
}

#define SET(option, value) api.curl_easy_setopt_fn(client->easy, option, value)

static void set_tls(struct http_client *client, const char *host)
{
    http_api_check_addresses(&api, client->easy, host);
    if (client->ca_file)
        SET(CURLOPT_CAINFO, client->ca_file);
    if (client->cert_file)
        SET(CURLOPT_SSLCERT, client->cert_file);
    if (client->key_file)
        SET(CURLOPT_SSLKEY, client->key_file);
}

static void set_options(struct http_client *client, const struct http_request *request,
                        struct curl_slist *headers, struct curl_slist *resolve)
{
    const long left_ms = ct_left_ms(request->deadline_ms);

    client->why[0] = '\0';
    SET(CURLOPT_ERRORBUFFER, client->why);
    SET(CURLOPT_URL, request->url);
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_PROXY, ""); /* no proxy: etcd is inside the site */
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_TCP_NODELAY, 1L);
    SET(CURLOPT_RESOLVE, resolve);
    SET(CURLOPT_OPENSOCKETFUNCTION, open_socket);
    SET(CURLOPT_HTTPHEADER, headers);
    SET(CURLOPT_POST, 1L);
    SET(CURLOPT_POSTFIELDS, request->body);
    SET(CURLOPT_POSTFIELDSIZE, (long)request->length);
    SET(CURLOPT_WRITEFUNCTION, take_body);
    SET(CURLOPT_WRITEDATA, client);
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)request->connect_ms);
    SET(CURLOPT_TIMEOUT_MS, left_ms > 0 ? left_ms : 1L);
    set_tls(client, request->host);
}

/* Until it ends by itself or is woken. 0 and the result, or -ECANCELED. */
static int transfer(struct http_client *client, CURLcode *result)
{
    int running = 1;

    while (!atomic_load(&client->is_woken)) {
        const CURLMsg *message;
        int left;

        if (api.curl_multi_perform_fn(client->multi, &running) != CURLM_OK)
            running = 0;
        message = api.curl_multi_info_read_fn(client->multi, &left);
        if (message || !running) {
            *result = message ? message->data.result : CURLE_FAILED_INIT;
            return 0;
        }
        (void)api.curl_multi_poll_fn(client->multi, NULL, 0, POLL_MS, NULL);
    }
    return -ECANCELED;
}

/* In the words of OpenSSL; of GnuTLS's and Mbed TLS's words nothing follows. With TLS 1.3 the alert
 * comes after the handshake, so that curl's code is that of a broken connection. */
static bool is_own_certificate_refused(const char *why)
{
    return strstr(why, "alert unknown ca") ||
           (strstr(why, " alert ") && strstr(why, "certificate"));
}

static int explain(struct http_client *client, CURLcode result, struct ctrun_error *err)
{
    const char *why = client->why[0] ? client->why : api.curl_easy_strerror_fn(result);

    switch ((int)result) {
    case CURLE_OK: return 0;
    case CURLE_WRITE_ERROR:
        if (client->has_enough)
            return 0;
        break;
    case CURLE_OPERATION_TIMEDOUT: return ct_fail(err, -ETIMEDOUT, "%s", why);
    case CURLE_GOT_NOTHING: return ct_fail(err, -ENODATA, "%s", why);
    case CURLE_PEER_FAILED_VERIFICATION: return ct_fail(err, -EACCES, "%s", why);
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM: return ct_fail(err, -EBADF, "%s", why);
    default: break;
    }
    return ct_fail(err, is_own_certificate_refused(why) ? -EPERM : -ENOTCONN, "%s",
                   why);
}

static struct curl_slist *make_headers(const struct http_request *request)
{
    struct curl_slist *list = api.curl_slist_append_fn(
        NULL, "Content-Type: application/json");
    struct curl_slist *longer;
    char line[2048];

    if (!list || !has(request->authorization) ||
        ct_format(line, sizeof line, "Authorization: %s", request->authorization) < 0)
        return list;
    if (!(longer = api.curl_slist_append_fn(list, line)))
        api.curl_slist_free_all_fn(list);
    return longer;
}

int http_client_post(struct http_client *client, const struct http_request *request,
                     long *status, struct ctrun_error *err)
{
    char where[CT_HOST_MAX + CT_ADDRS_MAX * CT_ADDR_TEXT_MAX];
    struct curl_slist *headers = make_headers(request);
    struct curl_slist *resolve;
    CURLcode result = CURLE_OUT_OF_MEMORY;
    int rc = -ENOMEM;

    *status = 0;
    format_resolve(where, sizeof where, request);
    resolve = request->addr_count > 0 ? api.curl_slist_append_fn(NULL, where) : NULL;
    client->request = request;
    client->has_enough = false;
    if (headers && (resolve || request->addr_count == 0)) {
        set_options(client, request, headers, resolve);
        (void)api.curl_multi_add_handle_fn(client->multi,
                                           client->easy); /* ours, free */
        rc = transfer(client, &result);
        (void)api.curl_easy_getinfo_fn(client->easy, CURLINFO_RESPONSE_CODE, status);
        (void)api.curl_multi_remove_handle_fn(client->multi, client->easy);
    }
    api.curl_slist_free_all_fn(headers);
    api.curl_slist_free_all_fn(resolve);
    client->request = NULL;
    if (rc < 0)
        return ct_fail(err, rc,
                       rc == -ECANCELED ? "the request was cancelled"
                                        : "http: out of memory");
    return explain(client, result, err);
}
