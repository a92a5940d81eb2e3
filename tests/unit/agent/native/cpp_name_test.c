/* SPDX-License-Identifier: Apache-2.0 */
/* Names of C++ functions: what is printed of them; any text can be parsed. */
#include <stdlib.h>
#include <string.h>

#include "agent/native/cpp_name.h"
#include "tests/lib/test.h"

static const struct {
    const char *mangled, *shown;
} names[] = {
    {"main", "main"},
    {"_Z7computei", "compute"},
    {"_ZL7computei", "compute"},
    {"_ZN4gloo9allreduceERKNS_16AllreduceOptionsE", "gloo::allreduce"},
    {"_ZN4gloo9transport3tcp13UnboundBuffer8waitRecvEPiNSt6chrono8durationIlSt5ratioILl"
     "1ELl1000EEEE",
     "gloo::transport::tcp::UnboundBuffer::waitRecv"},
    {"_ZNK4c10d5Store3getEv", "c10d::Store::get"},
    {"_ZN4c10d16ProcessGroupGlooC2Ev", "c10d::ProcessGroupGloo::ProcessGroupGloo"},
    {"_ZN4c10d16ProcessGroupGlooD0Ev", "c10d::ProcessGroupGloo::~ProcessGroupGloo"},
    {"_ZNSt6thread4joinEv", "std::thread::join"},
    {"_ZSt9terminatev", "std::terminate"},
    {"_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector<...>::push_back"},
    {"_ZN1aILb1EE1bEv", "a<...>::b"},
    {"_ZN12_GLOBAL__N_13runEv", "(anonymous)::run"},
    {"_ZZN4gloo3runEvENKUlvE_clEv", "gloo::run..."},
    {"_ZN4glooplERKS_", "gloo..."},
    {"_ZN4gloo999runEv", "gloo..."},
    {"_ZN4gloo", "gloo..."},
    {"_ZN1aIXsr1bE1cEEvv", "a<...>..."},
    {"_Z", "_Z"},
    {"_ZTV4gloo", "_ZTV4gloo"},
};

TEST(scopes_are_shown_and_arguments_are_not)
{
    char text[128];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        cpp_name_format(text, sizeof text, names[i].mangled);
        assert_string_equal(text, names[i].shown);
    }
}

TEST(a_name_may_be_cut_anywhere_and_the_room_may_be_small)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (size_t length = 0; length <= strlen(names[i].mangled); length++)
            for (size_t size = 1; size < 64; size += 9) {
                char *name = strndup(names[i].mangled, length);
                char *text = malloc(size);

                cpp_name_format(text, size, name);
                assert_true(strlen(text) < size);
                free(text);
                free(name);
            }
}
