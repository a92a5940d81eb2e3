/* SPDX-License-Identifier: Apache-2.0 */
/* $name and ${name} in worker arguments and log prefixes, by the rules of Python's
 * string.Template.safe_substitute: unknown names stay as typed, "$$" becomes "$". */
#pragma once

struct template_name {
    const char *name;
    const char *value;
};

/* `names` ends with a NULL name. Returns new text (caller frees), NULL when memory is
 * short. */
char *template_substitute(const char *text, const struct template_name *names);
