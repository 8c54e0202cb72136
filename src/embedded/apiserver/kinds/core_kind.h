// CoreKind: base of all built-in kinds; the type table gives fields, defaults and merging.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apiserver/kind.h"
#include "apiserver/kinds/cause.h"
#include "apiserver/kinds/types.h"

namespace varda::apiserver {

/// The changes that increase metadata.generation.
enum class Generation { kNone, kSpec, kSpecAndAnnotations };

struct CoreTraits {
  KindInfo info;
  Generation generation = Generation::kNone;
  bool status_preserves_labels = false;  // a status write does not change labels
};

class CoreKind : public Kind {
 public:
  explicit CoreKind(CoreTraits traits);

  Status decode(Json& object) const override;
  std::vector<std::string> prune(Json& object) const override;
  /// Applies the table's defaults; derived kinds add conditional ones.
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

// One factory per kind; the files are named after the kinds.
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
/// The subresource "scale", which is not a resource.
const Kind& scale_kind();

// Helpers shared by several kinds.

/// Conditional defaults of a pod spec: image pull policies, requests from limits, volumes without a
/// source.
void default_pod_spec(Json& spec);
/// Returns all errors of the pod spec at `field`.
Causes validate_pod_spec(const Json& spec, const std::string& field);
/// Checks labels and pod spec of a workload's template.
Causes validate_template(const Json& pod_template, const std::string& field);
Causes validate_labels(const Json& labels, const std::string& field);
Causes validate_label_selector(const Json& selector, const std::string& field);
/// "must be greater than or equal to 0", if the number is present.
void check_not_negative(const Json& object, std::string_view member, const std::string& field,
                        Causes& causes);
void check_port(const Json& port, const std::string& field, Causes& causes);
void append(Causes& all, Causes more);
/// Rejects addresses that a node may not report in the status of a node or pod. `old` is null at a
/// creation.
Causes validate_reported_addresses(std::string_view kind, const Json& old, const Json& object);

Column column(std::string name, std::string description, int priority = 0,
              std::string type = "string");
/// The first column of every table, and the age column.
Column name_column();
Column age_column();
/// Time since `time`, as "5m"; "<unknown>" if absent.
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
