// Varda's kinds: the source of the CRD files, the reference pages, the API server's validation and
// the CRDs of `varda up`.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/schema.h"
#include "meta/object.h"
#include "meta/status.h"

namespace varda::api {

struct PrinterColumn {
  std::string name, type, json_path, description;
  int priority = 0;  // 1: only with -o wide
};

struct Scale {
  std::string spec_replicas, status_replicas, label_selector;  // JSON paths
};

struct Kind {
  meta::Resource resource;
  std::string singular;
  std::string page;  // name of the reference page; "": the singular
  std::vector<std::string> short_names;
  std::vector<PrinterColumn> columns;
  std::optional<Scale> scale;
  std::vector<std::string> notes;  // for the reference page: differences and their reasons
  const Schema* schema = nullptr;  // schema of the whole object
  /// Rules that a CRD cannot express; only our API server checks them. `old` is null for a new
  /// object. Null: no such rules.
  std::vector<meta::StatusCause> (*native)(const Json& old, const Json& object) = nullptr;
};

/// All kinds of Varda, in the order of the reference.
const std::vector<const Kind*>& kinds();

/// The CustomResourceDefinition of a kind, and all of them, as applied by `varda up`.
Json crd(const Kind& kind);
std::vector<Json> crds();

/// Validates the whole object: schema and rules. For the CLI and for tests; an API server checks
/// the schema itself.
std::vector<meta::StatusCause> validate(const Kind& kind, const Json& object);

/// Cross-field rules for an API server that does not know the kinds: native twins of a CRD's
/// x-kubernetes-validations.
struct NativeRule {
  std::string group, kind;
  /// `old` is null for a new object. Thread-safe.
  std::function<std::vector<meta::StatusCause>(const Json& old, const Json& object)> check;
};
std::vector<NativeRule> native_rules();

/// The reference page of a kind, in Markdown.
std::string reference_page(const Kind& kind);

}  // namespace varda::api
