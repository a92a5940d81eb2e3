/* SPDX-License-Identifier: Apache-2.0 */
/* Why there is no connection. */
#pragma once

/* What the error of connect() says of the network, as a clause: of -EHOSTUNREACH "no machine answers
 * at that address, or ...". A negative errno; NULL: it says nothing of the network. Static. */
const char *ct_connect_error_explain(int rc);
