// CoreKind: what all built-in kinds have in common: fields, defaults and merging come from the type table.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apiserver/kind.h"
#include "apiserver/kinds/types.h"
#include "apiserver/schema/cause.h"

namespace varda::apiserver {

/// How metadata.generation of a kind moves.
enum class Generation { kNone, kSpec, kSpecAndAnnotations };

struct CoreTraits {
  KindInfo info;
  Generation generation = Generation::kNone;
  bool status_keeps_labels = false;  // a write of the status does not change labels
};

class CoreKind : public Kind {
 public:
  explicit CoreKind(CoreTraits traits);

  Status decode(Json& object) const override;
  std::vector<std::string> prune(Json& object) const override;
  /// The table's defaults; kinds with conditional ones add theirs.
  void apply_defaults(Json& object) const override;
  void prepare_create(Json& object) const override;
  void prepare_update(Json& object, const Json& old, Part part) const override;
  std::optional<ListMerge> list_merge(std::string_view path) const override;
  Json openapi_schema() const override;

 protected:
  const Type& type() const { return type_; }

 private:
  CoreTraits traits_;
  const Type& type_;
};

// One maker a kind; the files are named after them.
KindPtr make_pod();
KindPtr make_namespace();
KindPtr make_node();
KindPtr make_service();
KindPtr make_endpoints();
KindPtr make_endpoint_slice();
KindPtr make_config_map();
KindPtr make_secret();
KindPtr make_service_account();
KindPtr make_event();
KindPtr make_lease();
KindPtr make_deployment();
KindPtr make_replica_set();
KindPtr make_daemon_set();
KindPtr make_controller_revision();
KindPtr make_job();
KindPtr make_crd();
std::vector<KindPtr> make_reviews();
/// Of the subresource "scale"; it is no resource of its own.
const Kind& scale_kind();

// What several kinds share.

/// Conditional defaults of a pod's spec: image pull policies, requests from limits, volumes without a source.
void default_pod_spec(Json& spec);
/// Everything wrong with a pod's spec at `field`.
Causes validate_pod_spec(const Json& spec, const std::string& field);
/// Labels, and the template's spec, of a workload's template.
Causes validate_template(const Json& pod_template, const std::string& field);
Causes validate_labels(const Json& labels, const std::string& field);
Causes validate_label_selector(const Json& selector, const std::string& field);
/// "must be greater than or equal to 0", where the number is there.
void check_not_negative(const Json& object, std::string_view member, const std::string& field, Causes& causes);
void check_port(const Json& port, const std::string& field, Causes& causes);
void append(Causes& all, Causes more);
/// Addresses that a node may not report of itself or of a pod, in the status of that kind; `old` is null at a creation.
Causes validate_reported_addresses(std::string_view kind, const Json& old, const Json& object);

Column column(std::string name, std::string description, int priority = 0, std::string type = "string");
/// The first column of every table, and the one of ages.
Column name_column();
Column age_column();
/// "5m" since a time as text; "<unknown>" where there is none.
std::string age_cell(const Json& time, WallTime now);
Json age_of(const Json& object, WallTime now);
/// Names and images of a pod spec's containers, "a,b".
std::string container_names(const Json& pod_spec);
std::string container_images(const Json& pod_spec);
/// A LabelSelector as text; "<none>" if empty.
std::string selector_text(const Json& selector);
/// {"a": "b"} as "a=b,..."; "<none>" if empty.
std::string map_text(const Json& map);
std::string text_or(const Json& value, std::string_view otherwise);

}  // namespace varda::apiserver
