/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/error_file/redact.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/str.h"

#define HEX32 "0123456789abcdef0123456789abcdef"

static const struct {
    const char *text;
    const char *shown; /* NULL: unchanged */
} lines[] = {
    /* The name says that it is a secret. */
    {"AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG", "AWS_SECRET_ACCESS_KEY=***"},
    {"WANDB_API_KEY=" HEX32 " python train.py", "WANDB_API_KEY=*** python train.py"},
    {"export HF_TOKEN='swordfish'", "export HF_TOKEN='***'"},
    {"API_KEY_2: abcdef", "API_KEY_2: ***"},
    {"PASSWORD=123456", "PASSWORD=***"},
    {"db_password = hunter2", "db_password = ***"},
    {"password: swordfish", "password: ***"},
    {"passwd: Permission denied", "passwd: *** denied"},
    {"user/password: bob/hunter2", "user/password: ***"},
    {"old-passwd: Swordfish new_passwd=Swordfish", "old-passwd: *** new_passwd=***"},
    {"(passwd:Swordfish) app.password=Swordfish", "(passwd:***) app.password=***"},
    {"https://a/login?n=1&password=hunter2 /password=hunter2",
     "https://a/login?n=1&password=*** /password=***"},
    {"{'user': 'bob', 'password': 'two words', 'n': 3}",
     "{'user': 'bob', 'password': '***', 'n': 3}"},
    {"{\"api_key\": \"abcdefgh\"}", "{\"api_key\": \"***\"}"},
    {"apiKey=abcd1234efgh", "apiKey=***"},
    {"GET /v1?access_token=abcdef123456&n=3", "GET /v1?access_token=***&n=3"},
    {"token=abcdef0123456789", "token=***"},
    {"train.py --hub-token abcdef123456 --n 3", "train.py --hub-token *** --n 3"},
    {"train.py --password=hunter2", "train.py --password=***"},
    {"client_secret: 's3cr3t', next", "client_secret: '***', next"},
    {"A_TOKEN=aaaa B_TOKEN=bbbb", "A_TOKEN=*** B_TOKEN=***"},
    /* Secrets that are recognized without a name. */
    {"Authorization: Bearer abcdefgh.ijk", "Authorization: Bearer ***"},
    {"Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic ***"},
    {"id AKIAIOSFODNN7EXAMPLE.", "id ***."},
    {"(AIzaSyA-0123456789abcdefghijklmnopqrstu)", "(***)"},
    {"hf_abcdefghijklmnopqrstuvwxyz is refused", "*** is refused"},
    {"ghp_0123456789abcdefghijABCDEFGHIJ456789", "***"},
    {"github_pat_11ABCDEFG0123456789_abcdef", "***"},
    {"xoxb-1234567890-abc, sk-abcdefghijklmnopqrstuvwx", "***, ***"},
    {"jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NSJ9.abc-_", "jwt ***"},
    {"postgres://bob:hunter2@db:5432/x", "postgres://bob:***@db:5432/x"},
    {"https://:hunter2@host/", "https://:***@host/"},
    {"a\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc=\n-----END RSA PRIVATE KEY-----\nb",
     "a\n-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----\nb"},
    {"-----BEGIN RSA PRIVATE KEY-----\nDEK-Info: AES-128-CBC,01\n\nMIIE\n-----END RSA "
     "PRIVATE KEY-----\nb",
     "-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----\nb"},
    {"MIIEvQIBADANBgkq\nMzEfYyjiWA4R4/M2\n-----END PRIVATE KEY-----\nb",
     "***-----END PRIVATE KEY-----\nb"},
    {"-----BEGIN PGP PRIVATE KEY BLOCK-----\nlQOYBF\n",
     "-----BEGIN PGP PRIVATE KEY BLOCK-----***"},
    {"password=\"abcd\\\"efgh\" n=3", "password=\"***\" n=3"},
    {"AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEt==;Suffix=a", "AccountKey=***;Suffix=a"},
    {"https://a.blob.core.windows.net/c?ss=b&sig=abcDEF123%2Fxyz456%3D&se=2026",
     "https://a.blob.core.windows.net/c?ss=b&sig=***&se=2026"},
    {"https://b.s3.amazonaws.com/k?X-Amz-Signature=" HEX32 "&x=1",
     "https://b.s3.amazonaws.com/k?X-Amz-Signature=***&x=1"},
    {"Authorization: token " HEX32, "Authorization: token ***"},
    {"'Set-Cookie': 'id=38afes7a8; HttpOnly'", "'Set-Cookie': '***'"},
    {"DB_PASS=hunter2 MYSQL_PWD=hunter2", "DB_PASS=*** MYSQL_PWD=***"},
    {"https://user:p@ss:word@host/x", "https://user:***@host/x"},
    {"https://0123456789abcdefghij@host/x", "https://***@host/x"},
    {"curl -s -u bob:hunter2 https://x", "curl -s -u bob:*** https://x"},
    {"wandb login " HEX32 "01234567", "wandb login ***"},
    {"wandb: ERROR api_key " HEX32 " is wrong", "wandb: ERROR api_key *** is wrong"},
    {"https://hooks.slack.com/services/T0AB12CD3/B0AB12CD3/abCDef12GHijKL34",
     "https://hooks.slack.com/services/***"},
    {"sk_live_abcdefghijklmnopqrst, rk_test_abcdefghijklmnop", "***, ***"},
    {"GOCSPX-abcdefghijklmnopqrst api_org_abcdefghijklmnopqrst", "*** ***"},
    {"npm_" HEX32 "abcd pypi-AgEIcHlwaS5vcmcCJGFi glsa_abcdefghijklmnopqrst_ab",
     "*** *** ***"},
    {"dapi" HEX32 " nvapi-abcdefghijklmnopqrstuv", "*** ***"},
    /* Lines without a secret. */
    {"fit(signature=forward_with_kwargs_x) signature=0.123456789012345", NULL},
    {"OLDPWD=/home/me PWD=/home/me/job", NULL},
    {"cookie: not found", NULL},
    {"http://host:8080/a@b git@github.com:user/repo ssh://git@github.com/x", NULL},
    {"loss 1.0\nhello world\n-----END PRIVATE KEY-----", NULL},
    {"loss is 12345678\n-----END PUBLIC KEY-----", NULL},
    {"", NULL},
    {"step 3: loss=0.25 key=3 lr=1e-3", NULL},
    {"KEY=3 TOKEN=4096 tokens=1234567890123456", NULL},
    {"max_tokens: 4096, tokens/s: 12345.6, num_tokens=123456789", NULL},
    {"KeyError: 'model.layers.0.weight'", NULL},
    {"tokenizer: LlamaTokenizerFast(pad_token='[PAD]', eos_token='</s>')", NULL},
    {"Missing key(s) in state_dict: \"layer1.weight\"", NULL},
    {"cache_key: layer0_head12_block3, monkey=banana12345", NULL},
    {"key: model.layers.0.self_attn.q_proj.weight", NULL},
    {"next token: 'hello123'", NULL},
    {"InvalidTokenError: signature123456 has expired", NULL},
    {"ValueError: password: too short", NULL},
    {"    connect(user, password=password)", NULL},
    {"    client = Client(api_key=self.config.api_key, token=read_token())", NULL},
    {"    secret = os.environ[\"APP_SECRET\"]", NULL},
    {"HF_TOKEN=None API_KEY=${API_KEY} SECRET_KEY=<unset>", NULL},
    {"export PASSWORD=", NULL},
    {"user=bob,password_file=/etc/etcd.password,key=/etc/etcd.key", NULL},
    {"grep: /etc/passwd: Permission denied", NULL},
    {"'/etc/passwd': Permission denied; /etc/passwd:12: Bad line", NULL},
    {"cat ~/.vault-token: Input/output, ../etc/my.password: Input/output", NULL},
    {"see https://pytorch.org:443/docs/stable/elastic/errors.html", NULL},
    {"the --token option", NULL},
    {"a bearer of news", NULL},
    {"rank 0 (node1, pid 123) exited with 3", NULL},
};

TEST(secrets_are_masked_and_ordinary_lines_are_not)
{
    char text[512];

    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        const char *shown = lines[i].shown ? lines[i].shown : lines[i].text;

        assert_int_equal(ct_copy(text, sizeof text, lines[i].text), 0);
        assert_int_equal(redact(text) > 0, lines[i].shown != NULL);
        assert_string_equal(text, shown);
        assert_int_equal(redact(text), 0); /* a second pass finds nothing */
        assert_string_equal(text, shown);
    }
}

TEST(all_secrets_of_a_text_are_counted)
{
    char text[] =
        "line one\nA_TOKEN=abcd\nline three\nhttps://u:pass@h/ B_KEY='e f g'\n";

    assert_int_equal(redact(text), 3);
    assert_string_equal(
        text, "line one\nA_TOKEN=***\nline three\nhttps://u:***@h/ B_KEY='***'\n");
    assert_int_equal(redact(NULL), 0);
}

/* An error file may have a megabyte, and the agent waits meanwhile. This took minutes when each
 * candidate was compared with all of the rest. */
TEST(a_long_word_that_is_one_candidate_after_the_other_is_read_to_its_end)
{
    enum {
        NAMES = 10000
    };
    char *text = malloc(NAMES * 4 + 64);

    assert_non_null(text);
    for (size_t i = 0; i < NAMES; i++)
        memcpy(text + 4 * i, "key=", 4);
    assert_true(ct_format(text + 4 * NAMES, 64, " HF_TOKEN=swordfish") > 0);
    assert_int_equal(redact(text), 1);
    assert_string_equal(text + 4 * NAMES, " HF_TOKEN=***");
    free(text);
}
