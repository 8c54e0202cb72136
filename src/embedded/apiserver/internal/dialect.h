// The dialect: maps HTTP requests to operations on objects and outcomes to HTTP responses.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apiserver/internal/body.h"
#include "apiserver/internal/core.h"
#include "apiserver/internal/negotiation.h"
#include "apiserver/internal/objects.h"
#include "apiserver/internal/present.h"
#include "apiserver/internal/request_info.h"
#include "apiserver/internal/request_metrics.h"
#include "net/http.h"
#include "net/url.h"

namespace varda::apiserver {

/// One request in progress.
struct Call {
  const net::Request& http;
  Identity caller;
  Identity authenticated;  // identity before impersonation
  RequestInfo info;
  net::Query query;
  Attributes attributes;
  KindPtr kind;  // for kResource requests
  std::shared_ptr<const KindSet> kinds;
  Presentation how;
  std::vector<std::string> warnings;
};

/// Thread-safe.
class Dialect {
 public:
  Dialect(Core& core, Objects& objects)
      : core_(core), objects_(objects), metrics_(core.options.metrics) {}

  /// `identity` absent: authenticates the request.
  net::Response serve(const net::Request& request, const std::optional<Identity>& identity);
  /// Answers GET of one object for system:masters, in microseconds and without blocking. nullopt
  /// for all other requests.
  std::optional<net::Response> serve_at_once(const net::Request& request);

 private:
  using Reply = Outcome<net::Response>;

  net::Response serve(const net::Request& request, RequestInfo info,
                      const std::optional<Identity>& identity);
  net::Response respond(Call& call, const std::optional<Identity>& identity);
  Reply route(Call& call);
  Reply serve_resource(Call& call);
  Outcome<void> authorize(Call& call) const;
  Outcome<void> narrow_creation(const Call& call, Json& object) const;
  Outcome<void> narrow_change(const Call& call, const Json& old, Json& object) const;

  // objects (dialect.cc)
  Reply get(Call& call);
  Reply create(Call& call);
  Reply update(Call& call, Part part);
  Reply patch(Call& call, Part part);
  Reply remove(Call& call);
  // collections (collection.cc)
  Reply list(Call& call);
  Reply watch(Call& call);
  Reply remove_collection(Call& call);
  // subresources (subresources.cc)
  Reply subresource(Call& call);
  Reply scale(Call& call);
  Reply bind(Call& call);
  Reply evict(Call& call);
  Reply log(Call& call);
  Reply finalize(Call& call);
  // reviews of the caller (reviews.cc)
  Reply review(Call& call);
  Json rules_of(const Call& call, const std::string& ns) const;
  Outcome<void> impersonate(Call& call) const;
  bool allowed(const Call& call, const Attributes& what) const;
  /// Lookup of objects for authorization rules; valid during the call.
  Authorizer::Objects objects_of(const Call& call) const;
  // non-resource paths (discovery.cc)
  Reply other(Call& call);
  Reply discovery(Call& call);
  Reply openapi(Call& call);  // openapi_documents.cc

  net::Response answer(const Call& call, int status, const Json& body) const;
  net::Response failure(const net::Request& request, const ApiStatus& status,
                        const std::vector<std::string>& warnings) const;
  Reply answer_object(Call& call, int status, Json object) const;

  net::Response answer_text(const Call& call, int status, std::string body) const;

  struct Selected {
    std::vector<store::Entry> entries;
    Json metadata;
  };
  Outcome<Selected> select(Call& call) const;
  Outcome<std::vector<Json>> decode_all(const Kind& kind,
                                        const std::vector<store::Entry>& entries) const;
  WriteOptions write_options(Call& call, DryRun dry_run) const {
    return {.dry_run = dry_run, .warnings = &call.warnings};
  }

  Core& core_;
  Objects& objects_;
  RequestMetrics metrics_;
};

/// The version reported by the server.
inline constexpr std::string_view kGitVersion = "v1.33.0+varda." VARDA_VERSION;

/// Text answers: "ok", "404 page not found".
net::Response text_response(int status, std::string text);

}  // namespace varda::apiserver
