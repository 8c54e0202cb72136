// How a request proves that it may read an archive.
#pragma once

#include <memory>

#include "artifact/credentials.h"
#include "base/clock.h"
#include "net/http.h"
#include "net/url.h"

namespace varda::artifact {

/// One source's. Not thread-safe.
class Authorization {
 public:
  virtual ~Authorization() = default;
  /// The last thing that is done to a request.
  virtual void add(net::ClientRequest& request) = 0;
  /// The peer said 403. True: what it said makes a second try worth it.
  virtual bool refused(const net::Headers&) { return false; }
};

/// Whether `credentials` are sent to the source `url` of a request whose first URL is `first`.
struct Sending {
  enum class Kind { kNothing, kSent, kWithheld };
  Kind kind = Kind::kNothing;  // kNothing: they hold nothing for this scheme
  std::string why = {};        // kWithheld: what would have to change
};
Sending sending_of(const Credentials& credentials, const net::Url& url, const std::string& first);

/// Bearer token (RFC 6750) or user and password (RFC 7617); null: the credentials have neither.
std::unique_ptr<Authorization> http_authorization(const Credentials& credentials);

/// Where an s3 URL is read over HTTP. kInvalid: no bucket, no key, or an endpoint that is no http or https URL.
Result<net::Url> s3_address(const net::Url& url, const Credentials& credentials);
/// Signs requests to `address`; null: the credentials have no key, as for public buckets. A machine whose clock is wrong takes the
/// time from the peer that refuses it. `clock` outlives it.
std::unique_ptr<Authorization> s3_authorization(const net::Url& address, const Credentials& credentials, const Clock& clock);

}  // namespace varda::artifact
