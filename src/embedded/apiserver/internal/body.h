// Request bodies: from bytes to an object of a kind, with the errors and warnings of Kubernetes'
// decoders.
#pragma once

#include <string>
#include <vector>

#include "apiserver/internal/objects.h"
#include "apiserver/internal/outcome.h"
#include "apiserver/server.h"
#include "net/http.h"
#include "net/url.h"

namespace varda::apiserver {

/// ?fieldValidation=: Warn if absent; 422 for unknown values. `options_kind`: "CreateOptions" ...
/// for the message.
Outcome<Validation> parse_validation(const net::Query& query, std::string_view options_kind);
/// ?dryRun=.
Outcome<DryRun> parse_dry_run(const net::Query& query, std::string_view options_kind);
/// ?fieldManager= and ?force=.
Outcome<void> check_field_manager(const net::Query& query, std::string_view options_kind);

/// The body of a POST or PUT as an object of `kind`: checked, decoded, pruned. Unknown and
/// duplicate fields become `warnings` or, with kStrict, the error.
Outcome<Json> read_object(const net::Request& request, const Kind& kind, const Limits& limits,
                          Validation validation, std::vector<std::string>* warnings);

/// The same for a patched object: errors are 422 about "patch".
Outcome<Json> accept_patched(Json object, const Kind& kind, Validation validation,
                             const std::vector<std::string>& duplicates,
                             std::vector<std::string>* warnings);

/// A parsed patch; apply() may be called repeatedly.
class Patch {
 public:
  /// 415 for a patch type the kind does not support; 400 for a malformed body.
  static Outcome<Patch> read(const net::Request& request, const Kind& kind, const Limits& limits);
  /// The patched object, not yet decoded.
  Outcome<Json> apply(const Kind& kind, const Json& object) const;
  const std::vector<std::string>& duplicates() const { return duplicates_; }

 private:
  enum class Type { kJson, kMerge, kStrategic };
  Type type_ = Type::kMerge;
  Json patch_;
  std::size_t operations_max_ = 0;
  std::vector<std::string> duplicates_;
};

enum class DeletionOf { kObject, kCollection };

/// DeleteOptions from body and query. For a collection, ?resourceVersion is no precondition.
Outcome<DeleteOptions> read_delete_options(const net::Request& request, const net::Query& query,
                                           const Limits& limits, DeletionOf of, DryRun& dry_run);
/// Parses the DeleteOptions object; sets `dry_run` if requested.
Outcome<DeleteOptions> delete_options(const Json& body, DryRun& dry_run);

}  // namespace varda::apiserver
