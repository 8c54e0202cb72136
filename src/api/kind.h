// The kinds of ours: what the CRD files, the reference pages, the validation of an API server and `varda up` are made from.
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
  std::string page;  // name of its reference page; "" the singular
  std::vector<std::string> short_names;
  std::vector<PrinterColumn> columns;
  std::optional<Scale> scale;
  std::vector<std::string> notes;  // for the reference page: what deviates and why
  const Schema* schema = nullptr;  // of the whole object
  /// Further rules that a CRD cannot state; a server of ours checks them. `old` is null when the object is created. Null: none.
  std::vector<meta::StatusCause> (*native)(const Json& old, const Json& object) = nullptr;
};

/// Every kind of ours, in the order of the reference.
const std::vector<const Kind*>& kinds();

/// The CustomResourceDefinition of a kind, and all of them: what `varda up` applies.
Json crd(const Kind& kind);
std::vector<Json> crds();

/// The whole object, schema and rules. For the CLI and for tests; a server checks the schema itself.
std::vector<meta::StatusCause> validate(const Kind& kind, const Json& object);

/// Cross-field rules for a server that knows no kinds: what a CRD's x-kubernetes-validations say, natively.
struct NativeRule {
  std::string group, kind;
  /// `old` is null when the object is created. Thread-safe.
  std::function<std::vector<meta::StatusCause>(const Json& old, const Json& object)> check;
};
std::vector<NativeRule> native_rules();

/// The reference page of a kind, in Markdown.
std::string reference_page(const Kind& kind);

}  // namespace varda::api
