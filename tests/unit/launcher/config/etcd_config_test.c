/* SPDX-License-Identifier: Apache-2.0 */
#include <unistd.h>

#include "launcher/config/etcd_config.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/str.h"

static int read_it(struct etcd_config *out, const char *endpoints, const char *text,
                   const char *user, const char *password, struct ctrun_error *err)
{
    struct rdzv_conf conf;

    assert_int_equal(rdzv_conf_parse(text, &conf, NULL), 0);
    return etcd_config_read(out, endpoints, &conf, user, password, err);
}

TEST(members_are_a_list_with_or_without_scheme_and_port)
{
    static const struct {
        const char *text;
        const char *all;
    } rows[] = {
        {"", "localhost:2379"},
        {"etcd1", "etcd1:2379"},
        {"etcd1:1,etcd2,[fd00::1]:3", "etcd1:1, etcd2:2379, [fd00::1]:3"},
        {"http://a:1/,http://b", "a:1, b:2379"},
        {"https://a:1,b:2", "https://a:1, b:2"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct etcd_config config;
        char all[256];

        assert_int_equal(read_it(&config, rows[i].text, "", NULL, NULL, NULL), 0);
        etcd_config_format(all, sizeof all, &config);
        assert_string_equal(all, rows[i].all);
    }
}

TEST(both_spellings_of_torchrun_name_the_tls_files)
{
    static const char *const spellings[] = {
        "protocol=https,cacert=/etc/passwd,cert=/etc/group,key=/etc/hosts",
        "protocol=https,ca_cert=/etc/passwd,ssl_cert=/etc/group,ssl_cert_key=/etc/"
        "hosts"};

    for (size_t i = 0; i < 2; i++) {
        struct etcd_config config;

        assert_int_equal(read_it(&config, "h", spellings[i], NULL, NULL, NULL), 0);
        assert_true(config.is_tls);
        assert_string_equal(config.ca_file, "/etc/passwd");
        assert_string_equal(config.cert_file, "/etc/group");
        assert_string_equal(config.key_file, "/etc/hosts");
    }
}

TEST(the_password_comes_from_a_file_or_the_environment)
{
    char path[] = "/tmp/ctrun-etcd-XXXXXX";
    char conf[64];
    const int fd = mkstemp(path);
    struct etcd_config config;

    assert_true(fd >= 0);
    assert_int_equal(write(fd, "from file\n", 10), 10);
    close(fd);
    (void)ct_format(conf, sizeof conf, "user=me,password_file=%s", path);
    assert_int_equal(read_it(&config, "h", conf, "other", "from env", NULL), 0);
    assert_string_equal(config.user, "me");
    assert_string_equal(config.password, "from file");
    unlink(path);
    assert_int_equal(read_it(&config, "h", "", "other", "from env", NULL), 0);
    assert_string_equal(config.user, "other");
    assert_string_equal(config.password, "from env");
    etcd_config_wipe(&config);
    assert_string_equal(config.password, "");
}

TEST(what_cannot_be_meant_is_refused_with_its_name)
{
    static const struct {
        const char *conf;
        const char *says;
    } rows[] = {
        {"password=x", "password_file"},
        {"protocol=ftp", "http or https"},
        {"cacert=/no/such/file", "/no/such/file"},
        {"protocol=https,cert=/etc/passwd", "cert and key"},
        {"cacert=/etc/passwd", "protocol=https"},
        {"protocol=https,cacert=/tmp", "Is a directory"},
        {"protocol=https,cacert=/dev/null", "no regular file"}, /* as a pipe */
        {"lease_ttl=1", "2 to 3600"},
        {"lease_ttl=x", "lease_ttl"},
        {"password_file=/no/such/file", "/no/such/file"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct etcd_config config;
        struct ctrun_error err;

        assert_true(read_it(&config, "h", rows[i].conf, NULL, NULL, &err) < 0);
        if (!strstr(err.text, rows[i].says))
            fail_msg("%s: '%s' does not say '%s'", rows[i].conf, err.text,
                     rows[i].says);
    }
}

TEST(endpoints_that_cannot_be_meant_are_refused)
{
    static const struct {
        const char *endpoint;
        const char *says;
    } rows[] = {
        {"h:0", "port 0"},
        {"::1:2379", "[::1]:2379"},
        {"me:secret@h:2379", "password_file"},
        {"http://me:secret@h:2379", "...@h:2379"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct etcd_config config;
        struct ctrun_error err;

        assert_true(read_it(&config, rows[i].endpoint, "", NULL, NULL, &err) < 0);
        assert_non_null(strstr(err.text, rows[i].says));
        assert_null(strstr(err.text, "secret"));
    }
}

TEST(keys_lie_below_a_prefix_without_a_slash_at_its_end)
{
    static const struct {
        const char *conf;
        const char *prefix;
    } rows[] = {{"", "/ctrun"}, {"etcd_prefix=/a/b/", "/a/b"}, {"etcd_prefix=x", "/x"}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct etcd_config config;

        assert_int_equal(read_it(&config, "h", rows[i].conf, NULL, NULL, NULL), 0);
        assert_string_equal(config.prefix, rows[i].prefix);
    }
}
