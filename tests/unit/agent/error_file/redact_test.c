/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "agent/error_file/redact.h"
#include "tests/lib/test.h"
#include "worker_sdk/base/str.h"

#define HEX32 "0123456789abcdef0123456789abcdef"

static const struct {
    const char *text;
    const char *shown; /* NULL: as it is */
} lines[] = {
    /* Names that say it. */
    {"AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG", "AWS_SECRET_ACCESS_KEY=***"},
    {"WANDB_API_KEY=" HEX32 " python train.py", "WANDB_API_KEY=*** python train.py"},
    {"export HF_TOKEN='swordfish'", "export HF_TOKEN='***'"},
    {"API_KEY_2: abcdef", "API_KEY_2: ***"},
    {"PASSWORD=123456", "PASSWORD=***"},
    {"db_password = hunter2", "db_password = ***"},
    {"password: swordfish", "password: ***"},
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
    /* Shapes that need no name. */
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
    /* Ordinary lines. */
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
    {"see https://pytorch.org:443/docs/stable/elastic/errors.html", NULL},
    {"the --token option", NULL},
    {"a bearer of news", NULL},
    {"rank 0 (node1, pid 123) exited with 3", NULL},
};

static void secrets_are_masked_and_ordinary_lines_are_not(void **state)
{
    char text[512];

    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        const char *shown = lines[i].shown ? lines[i].shown : lines[i].text;

        assert_int_equal(ct_copy(text, sizeof text, lines[i].text), 0);
        assert_int_equal(redact(text) > 0, lines[i].shown != NULL);
        assert_string_equal(text, shown);
        assert_int_equal(redact(text), 0); /* nothing is left to find */
        assert_string_equal(text, shown);
    }
}

static void all_secrets_of_a_text_are_counted(void **state)
{
    char text[] =
        "line one\nA_TOKEN=abcd\nline three\nhttps://u:pass@h/ B_KEY='e f g'\n";

    (void)state;
    assert_int_equal(redact(text), 3);
    assert_string_equal(
        text, "line one\nA_TOKEN=***\nline three\nhttps://u:***@h/ B_KEY='***'\n");
    assert_int_equal(redact(NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(secrets_are_masked_and_ordinary_lines_are_not),
        cmocka_unit_test(all_secrets_of_a_text_are_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
