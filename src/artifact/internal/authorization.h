// Adds proof to a request that it may read an archive.
#pragma once

#include <memory>

#include "artifact/credentials.h"
#include "base/clock.h"
#include "net/http.h"
#include "net/url.h"

namespace varda::artifact {

/// For one source. Not thread-safe.
class Authorization {
 public:
  virtual ~Authorization() = default;
  /// The last step in building a request.
  virtual void add(net::ClientRequest& request) = 0;
  /// Called after a 403. True: its headers justify a second attempt.
  virtual bool refused(const net::Headers&) { return false; }
};

/// Decides whether `credentials` are sent to the source `url` of a request with the first URL
/// `first`.
struct Sending {
  enum class Kind { kNothing, kSent, kWithheld };
  Kind kind = Kind::kNothing;  // kNothing: no credentials for this scheme
  std::string why = {};        // kWithheld: the required change
};
Sending sending_of(const Credentials& credentials, const net::Url& url, const std::string& first);

/// Bearer token (RFC 6750) or user and password (RFC 7617); null: neither is set.
std::unique_ptr<Authorization> http_authorization(const Credentials& credentials);

/// Signs requests to `address`; null: the credentials have no key, as for public buckets. If the
/// server refuses the time of a wrong clock, the server's time is used. `clock` outlives it.
std::unique_ptr<Authorization> s3_authorization(const net::Url& address,
                                                const Credentials& credentials, const Clock& clock);

}  // namespace varda::artifact
