// Bodies of writes: from bytes to an object of a kind, with the errors and warnings Kubernetes' decoders give.
#pragma once

#include <string>
#include <vector>

#include "apiserver/internal/objects.h"
#include "apiserver/internal/outcome.h"
#include "apiserver/server.h"
#include "net/http.h"
#include "net/url.h"

namespace varda::apiserver {

/// ?fieldValidation=: Warn where absent; 422 for other words. `options_kind`: "CreateOptions" ... for the message.
Outcome<Validation> parse_validation(const net::Query& query, std::string_view options_kind);
/// ?dryRun=.
Outcome<DryRun> parse_dry_run(const net::Query& query, std::string_view options_kind);
/// ?fieldManager= and ?force=.
Outcome<void> check_field_manager(const net::Query& query, std::string_view options_kind);

/// The body of a POST or PUT as an object of `kind`: checked, decoded, pruned. Unknown and duplicate fields become `warnings` or,
/// with kStrict, the error.
Outcome<Json> read_object(const net::Request& request, const Kind& kind, const Limits& limits, Validation validation,
                          std::vector<std::string>* warnings);

/// The same for what a patch made: errors are 422 about "patch".
Outcome<Json> accept_patched(Json object, const Kind& kind, Validation validation, const std::vector<std::string>& duplicates,
                             std::vector<std::string>* warnings);

/// A patch, parsed: apply() can be called again and again.
class Patch {
 public:
  /// 415 for a type the kind does not take; 400 for a body that is no patch.
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

/// DeleteOptions of body and query. The query of a collection has a resourceVersion of its own, which is no precondition.
Outcome<DeleteOptions> read_delete_options(const net::Request& request, const net::Query& query, const Limits& limits,
                                           DeletionOf of, DryRun& dry_run);
/// Of the DeleteOptions themselves; sets `dry_run` where they ask for it.
Outcome<DeleteOptions> delete_options(const Json& given, DryRun& dry_run);

}  // namespace varda::apiserver
