/* SPDX-License-Identifier: Apache-2.0 */
/* Removes secrets from a worker's output that ctrun quotes: passwords, tokens and keys that a
 * program printed before it failed must not get into reports. Secrets of a known shape are
 * replaced by "***":
 *
 *   - NAME=value and NAME: value, where NAME says that it is a password, a secret, a token or a key
 *   - "Bearer value", the password in scheme://user:password@host, signatures in URLs, cookies, private
 *     keys in PEM
 *   - tokens of AWS, Google, Hugging Face, GitHub, GitLab, Slack, OpenAI and others, JSON Web Tokens
 *
 * A secret of another shape is not found. Ordinary lines (key=3, max_tokens: 4096, KeyError:
 * 'x', eos_token="</s>") stay as they are. Pure. */
#pragma once

#include <stddef.h>

/* Replaces secrets in text, in place: the text never becomes longer. Returns how many there
 * were. NULL is fine. */
size_t redact(char *text);
