// Deployment, ReplicaSet, DaemonSet, ControllerRevision and Job.
#include <algorithm>

#include "apiserver/kinds/core_kind.h"
#include "base/text.h"
#include "meta/object.h"
#include "meta/selector.h"

namespace varda::apiserver {

namespace {

const Scale kReplicas = {.spec_replicas = ".spec.replicas",
                         .status_replicas = ".status.replicas",
                         .label_selector = ".spec.selector"};

// A workload needs a non-empty selector that matches its own template.
Causes check_selector(const Json& spec) {
  const Json& selector = spec["selector"];
  if (selector.is_null()) return {required("spec.selector")};
  Causes causes = validate_label_selector(selector, "spec.selector");
  const bool empty = selector["matchLabels"].empty() && selector["matchExpressions"].empty();
  if (empty) {
    causes.push_back({"FieldValueInvalid",
                      "Invalid value: {}: empty selector is invalid for deployment",
                      "spec.selector"});
    return causes;
  }
  auto parsed = meta::LabelSelector::from_json(selector);
  if (parsed.ok() && !parsed->matches_labels(spec.at("template/metadata/labels"))) {
    causes.push_back(invalid("spec.template.metadata.labels", spec.at("template/metadata/labels"),
                             "`selector` does not match template `labels`"));
  }
  return causes;
}

Causes check_always(const Json& spec) {
  const std::string& policy = spec.at("template/spec/restartPolicy").as_string();
  if (policy == "Always") return {};
  return {not_supported("spec.template.spec.restartPolicy", policy, {"Always"})};
}

Causes check_frozen_selector(const Json& object, const Json& old) {
  if (object.at("spec/selector") == old.at("spec/selector")) return {};
  return {invalid("spec.selector", object.at("spec/selector"), "field is immutable")};
}

// maxSurge and maxUnavailable are a count or a percentage.
bool is_percentage(const Json& value) {
  const std::string& text = value.as_string();
  return text.size() > 1 && text.back() == '%' &&
         text.find_first_not_of("0123456789") == text.size() - 1;
}

void check_count_or_percentage(const Json& strategy, const char* member, const std::string& field,
                               Causes& causes) {
  const Json& value = strategy[member];
  if (value.is_string() && !is_percentage(value)) {
    causes.push_back(invalid(child(field, member), value,
                             "a valid percent string must be a numeric string followed by an "
                             "ending '%' (e.g. '1%',  or '93%', regex used "
                             "for validation is '[0-9]+%')"));
  } else if (value.is_integer() && value.as_integer() < 0) {
    causes.push_back(invalid(child(field, member), value, "must be greater than or equal to 0"));
  }
}

bool is_nothing(const Json& value) { return value == Json(0) || value.as_string() == "0%"; }

std::vector<Column> with_pod_columns(std::vector<Column> columns) {
  columns.push_back(column("Containers", "Names of the containers in the template.", 1));
  columns.push_back(column("Images", "Images of the containers in the template.", 1));
  columns.push_back(column("Selector", "Labels of the pods.", 1));
  return columns;
}

std::vector<Json> with_pod_cells(std::vector<Json> cells, const Json& spec) {
  cells.emplace_back(container_names(spec.at("template/spec")));
  cells.emplace_back(container_images(spec.at("template/spec")));
  cells.emplace_back(selector_text(spec["selector"]));
  return cells;
}

class DeploymentKind : public CoreKind {
 public:
  DeploymentKind()
      : CoreKind({.info = {.resource = {"apps", "v1", "Deployment", "deployments", true},
                           .short_names = {"deploy"},
                           .categories = {"all"},
                           .status = true,
                           .scale = kReplicas},
                  .generation = Generation::kSpecAndAnnotations,
                  .status_preserves_labels = true}) {}

  void apply_defaults(Json& object) const override {
    CoreKind::apply_defaults(object);
    Json& spec = object["spec"];
    default_pod_spec(spec["template"]["spec"]);
    Json& strategy = spec["strategy"];
    if (strategy["type"].as_string() != "RollingUpdate") return;
    Json& rolling = strategy["rollingUpdate"];
    if (!rolling.is_object()) rolling = Json::object();
    for (const char* member : {"maxUnavailable", "maxSurge"}) {
      if (!rolling.contains(member)) rolling.set(member, "25%");
    }
  }

  Causes validate_create(const Json& object) const override {
    const Json& spec = object["spec"];
    Causes causes;
    check_not_negative(spec, "replicas", "spec", causes);
    append(causes, check_selector(spec));
    append(causes, validate_template(spec["template"], "spec.template"));
    append(causes, check_always(spec));
    append(causes, check_strategy(spec["strategy"]));
    for (const char* member :
         {"minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"}) {
      check_not_negative(spec, member, "spec", causes);
    }
    const Json* deadline = spec.find("progressDeadlineSeconds");
    if (deadline != nullptr && deadline->as_integer() >= 0 &&
        deadline->as_integer() <= spec["minReadySeconds"].as_integer()) {
      causes.push_back(invalid("spec.progressDeadlineSeconds", *deadline,
                               "must be greater than minReadySeconds"));
    }
    return causes;
  }
  Causes validate_update(const Json& object, const Json& old, Part part) const override {
    if (part == Part::kStatus) {
      Causes causes;
      for (const char* member : {"observedGeneration", "replicas", "updatedReplicas",
                                 "readyReplicas", "availableReplicas", "unavailableReplicas"}) {
        check_not_negative(object["status"], member, "status", causes);
      }
      return causes;
    }
    Causes causes = validate_create(object);
    append(causes, check_frozen_selector(object, old));
    return causes;
  }

  const std::vector<Column>& columns() const override {
    static const std::vector<Column> columns = with_pod_columns({
        name_column(),
        column("Ready", "Ready pods, and desired pods."),
        column("Up-to-date", "Pods of the current template."),
        column("Available", "Pods that are ready for at least minReadySeconds."),
        age_column(),
    });
    return columns;
  }
  std::vector<Json> cells(const Json& object, WallTime now) const override {
    const Json& status = object["status"];
    return with_pod_cells({object.at("metadata/name"),
                           std::to_string(status["readyReplicas"].as_integer()) + "/" +
                               std::to_string(object.at("spec/replicas").as_integer()),
                           status["updatedReplicas"].as_integer(),
                           status["availableReplicas"].as_integer(), age_of(object, now)},
                          object["spec"]);
  }

 private:
  static Causes check_strategy(const Json& strategy) {
    Causes causes;
    const std::string& type = strategy["type"].as_string();
    const Json& rolling = strategy["rollingUpdate"];
    if (type == "Recreate") {
      if (!rolling.is_null()) {
        causes.push_back(
            forbidden_field("spec.strategy.rollingUpdate",
                            "may not be specified when strategy `type` is 'Recreate'"));
      }
    } else if (type == "RollingUpdate") {
      check_count_or_percentage(rolling, "maxUnavailable", "spec.strategy.rollingUpdate", causes);
      check_count_or_percentage(rolling, "maxSurge", "spec.strategy.rollingUpdate", causes);
      if (is_nothing(rolling["maxUnavailable"]) && is_nothing(rolling["maxSurge"])) {
        causes.push_back(invalid("spec.strategy.rollingUpdate.maxUnavailable",
                                 rolling["maxUnavailable"], "may not be 0 when `maxSurge` is 0"));
      }
    } else {
      causes.push_back(not_supported("spec.strategy.type", type, {"Recreate", "RollingUpdate"}));
    }
    return causes;
  }
};

class ReplicaSetKind : public CoreKind {
 public:
  ReplicaSetKind()
      : CoreKind({.info = {.resource = {"apps", "v1", "ReplicaSet", "replicasets", true},
                           .short_names = {"rs"},
                           .categories = {"all"},
                           .status = true,
                           .scale = kReplicas},
                  .generation = Generation::kSpec,
                  .status_preserves_labels = true}) {}

  void apply_defaults(Json& object) const override {
    CoreKind::apply_defaults(object);
    default_pod_spec(object["spec"]["template"]["spec"]);
  }
  Causes validate_create(const Json& object) const override {
    const Json& spec = object["spec"];
    Causes causes;
    check_not_negative(spec, "replicas", "spec", causes);
    append(causes, check_selector(spec));
    append(causes, validate_template(spec["template"], "spec.template"));
    append(causes, check_always(spec));
    return causes;
  }
  Causes validate_update(const Json& object, const Json& old, Part part) const override {
    if (part == Part::kStatus) return {};
    Causes causes = validate_create(object);
    append(causes, check_frozen_selector(object, old));
    return causes;
  }
  const std::vector<Column>& columns() const override {
    static const std::vector<Column> columns = with_pod_columns(
        {name_column(), column("Desired", "Desired pods."), column("Current", "Actual pods."),
         column("Ready", "Pods that are ready."), age_column()});
    return columns;
  }
  std::vector<Json> cells(const Json& object, WallTime now) const override {
    const Json& status = object["status"];
    return with_pod_cells({object.at("metadata/name"), object.at("spec/replicas").as_integer(),
                           status["replicas"].as_integer(), status["readyReplicas"].as_integer(),
                           age_of(object, now)},
                          object["spec"]);
  }
  const std::vector<std::string>& selectable_fields() const override {
    static const std::vector<std::string> fields = {"status.replicas"};
    return fields;
  }
};

class DaemonSetKind : public CoreKind {
 public:
  DaemonSetKind()
      : CoreKind({.info = {.resource = {"apps", "v1", "DaemonSet", "daemonsets", true},
                           .short_names = {"ds"},
                           .categories = {"all"},
                           .status = true},
                  .generation = Generation::kSpec,
                  .status_preserves_labels = true}) {}

  void apply_defaults(Json& object) const override {
    CoreKind::apply_defaults(object);
    Json& spec = object["spec"];
    default_pod_spec(spec["template"]["spec"]);
    Json& strategy = spec["updateStrategy"];
    if (strategy["type"].as_string() != "RollingUpdate") return;
    Json& rolling = strategy["rollingUpdate"];
    if (!rolling.is_object()) rolling = Json::object();
    if (!rolling.contains("maxUnavailable")) rolling.set("maxUnavailable", 1);
    if (!rolling.contains("maxSurge")) rolling.set("maxSurge", 0);
  }
  Causes validate_create(const Json& object) const override {
    const Json& spec = object["spec"];
    Causes causes = check_selector(spec);
    append(causes, validate_template(spec["template"], "spec.template"));
    append(causes, check_always(spec));
    check_not_negative(spec, "minReadySeconds", "spec", causes);
    const std::string& type = spec.at("updateStrategy/type").as_string();
    if (type != "RollingUpdate" && type != "OnDelete") {
      causes.push_back(
          not_supported("spec.updateStrategy.type", type, {"RollingUpdate", "OnDelete"}));
    }
    return causes;
  }
  Causes validate_update(const Json& object, const Json& old, Part part) const override {
    if (part == Part::kStatus) return {};
    Causes causes = validate_create(object);
    append(causes, check_frozen_selector(object, old));
    return causes;
  }
  const std::vector<Column>& columns() const override {
    static const std::vector<Column> columns = with_pod_columns({
        name_column(),
        column("Desired", "Nodes that should run a pod.", 0, "integer"),
        column("Current", "Nodes that run a pod.", 0, "integer"),
        column("Ready", "Pods that are ready.", 0, "integer"),
        column("Up-to-date", "Pods of the current template.", 0, "integer"),
        column("Available", "Pods that are ready for at least minReadySeconds.", 0, "integer"),
        column("Node Selector", "Labels of the nodes."),
        age_column(),
    });
    return columns;
  }
  std::vector<Json> cells(const Json& object, WallTime now) const override {
    const Json& status = object["status"];
    return with_pod_cells(
        {object.at("metadata/name"), status["desiredNumberScheduled"].as_integer(),
         status["currentNumberScheduled"].as_integer(), status["numberReady"].as_integer(),
         status["updatedNumberScheduled"].as_integer(), status["numberAvailable"].as_integer(),
         map_text(object.at("spec/template/spec/nodeSelector")), age_of(object, now)},
        object["spec"]);
  }
};

// A past state of a DaemonSet. The data is immutable; only the revision changes.
class ControllerRevisionKind : public CoreKind {
 public:
  ControllerRevisionKind()
      : CoreKind({.info = {.resource = {"apps", "v1", "ControllerRevision", "controllerrevisions",
                                        true}}}) {}

  Causes validate_create(const Json& object) const override {
    Causes causes;
    if (object["data"].is_null()) causes.push_back(required("data", "data is mandatory"));
    check_not_negative(object, "revision", "", causes);
    return causes;
  }
  Causes validate_update(const Json& object, const Json& old, Part) const override {
    Causes causes = validate_create(object);
    if (!(object["data"] == old["data"]))
      causes.push_back(invalid("data", object["data"], "field is immutable"));
    return causes;
  }
  const std::vector<Column>& columns() const override {
    static const std::vector<Column> columns = {
        name_column(), column("Controller", "Controller of the revision."),
        column("Revision", "Grows with each revision."), age_column()};
    return columns;
  }
  std::vector<Json> cells(const Json& object, WallTime now) const override {
    return {object.at("metadata/name"), controller(object), object["revision"].as_integer(),
            age_of(object, now)};
  }

 private:
  // "daemonset.apps/agent"
  static std::string controller(const Json& object) {
    for (const Json& owner : object.at("metadata/ownerReferences").as_array()) {
      if (!owner["controller"].as_bool()) continue;
      std::string kind = lower(owner["kind"].as_string());
      const std::string& version = owner["apiVersion"].as_string();
      const auto slash = version.find('/');
      if (slash != std::string::npos) kind += "." + version.substr(0, slash);
      return kind + "/" + owner["name"].as_string();
    }
    return "<none>";
  }
};

class JobKind : public CoreKind {
 public:
  JobKind()
      : CoreKind({.info = {.resource = {"batch", "v1", "Job", "jobs", true},
                           .categories = {"all"},
                           .status = true,
                           .orphan_dependents_by_default = true},
                  .generation = Generation::kSpec,
                  .status_preserves_labels = false}) {}

  void prepare_create(Json& object) const override {
    CoreKind::prepare_create(object);
    if (object.at("spec/manualSelector").as_bool()) return;
    // The job's uid label selects its pods.
    const Json uid = object.at("metadata/uid");
    const Json name = object.at("metadata/name");
    for (const char* labels : {"metadata/labels", "spec/template/metadata/labels"}) {
      Json& map = object.make(labels);
      for (const char* key : {"batch.kubernetes.io/controller-uid", "controller-uid"})
        map.set(key, uid);
      for (const char* key : {"batch.kubernetes.io/job-name", "job-name"}) map.set(key, name);
    }
    object.make("spec/selector/matchLabels").set("batch.kubernetes.io/controller-uid", uid);
    object["spec"].set("manualSelector", false);
  }
  void apply_defaults(Json& object) const override {
    CoreKind::apply_defaults(object);
    Json& spec = object["spec"];
    default_pod_spec(spec["template"]["spec"]);
    if (!spec.contains("parallelism") && !spec.contains("completions")) spec.set("completions", 1);
    if (!spec.contains("parallelism")) spec.set("parallelism", 1);
    if (!spec.contains("backoffLimit"))
      spec.set("backoffLimit", spec.contains("backoffLimitPerIndex") ? 2147483647 : 6);
    if (!spec.contains("podReplacementPolicy")) {
      spec.set("podReplacementPolicy",
               spec.contains("podFailurePolicy") ? "Failed" : "TerminatingOrFailed");
    }
  }
  Causes validate_create(const Json& object) const override {
    const Json& spec = object["spec"];
    Causes causes;
    for (const char* member : {"parallelism", "completions", "backoffLimit",
                               "activeDeadlineSeconds", "ttlSecondsAfterFinished"}) {
      check_not_negative(spec, member, "spec", causes);
    }
    append(causes, validate_template(spec["template"], "spec.template"));
    const std::string& policy = spec.at("template/spec/restartPolicy").as_string();
    if (policy != "Never" && policy != "OnFailure") {
      causes.push_back(
          required("spec.template.spec.restartPolicy", "valid values: \"OnFailure\", \"Never\""));
    }
    const std::string& mode = spec["completionMode"].as_string();
    if (mode != "NonIndexed" && mode != "Indexed")
      causes.push_back(not_supported("spec.completionMode", mode, {"Indexed", "NonIndexed"}));
    return causes;
  }
  Causes validate_update(const Json& object, const Json& old, Part part) const override {
    if (part == Part::kStatus) return {};
    Causes causes;
    check_not_negative(object["spec"], "parallelism", "spec", causes);
    for (const char* member : {"completions", "selector", "template", "completionMode"}) {
      const bool suspended_template =
          std::string_view(member) == "template" && old.at("spec/suspend").as_bool();
      if (!suspended_template && !(object["spec"][member] == old["spec"][member])) {
        causes.push_back(
            invalid(child("spec", member), object["spec"][member], "field is immutable"));
      }
    }
    return causes;
  }
  const std::vector<Column>& columns() const override {
    static const std::vector<Column> columns = with_pod_columns({
        name_column(),
        column("Status", "State of the job."),
        column("Completions", "Succeeded pods, and required pods."),
        column("Duration", "Time from start to completion."),
        age_column(),
    });
    return columns;
  }
  std::vector<Json> cells(const Json& object, WallTime now) const override {
    return with_pod_cells({object.at("metadata/name"), job_status(object), completions(object),
                           duration(object, now), age_of(object, now)},
                          object["spec"]);
  }
  const std::vector<std::string>& selectable_fields() const override {
    static const std::vector<std::string> fields = {"status.successful"};
    return fields;
  }
  std::string field(const Json& object, std::string_view) const override {
    return std::to_string(object.at("status/succeeded").as_integer());
  }

 private:
  static std::string job_status(const Json& job) {
    for (const char* type :
         {"Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet"}) {
      for (const Json& condition : job.at("status/conditions").as_array()) {
        if (condition["type"].as_string() == type && condition["status"].as_string() == "True")
          return type;
      }
    }
    return job.at("metadata/deletionTimestamp").is_null() ? "Running" : "Terminating";
  }
  static std::string completions(const Json& job) {
    const std::string done = std::to_string(job.at("status/succeeded").as_integer());
    if (const Json* wanted = job["spec"].find("completions"))
      return done + "/" + std::to_string(wanted->as_integer());
    const std::int64_t parallel = job.at("spec/parallelism").as_integer();
    return parallel > 1 ? done + "/1 of " + std::to_string(parallel) : done + "/1";
  }
  static std::string duration(const Json& job, WallTime now) {
    const Json& start = job.at("status/startTime");
    if (!start.is_string()) return "";
    const Json& end = job.at("status/completionTime");
    if (end.is_string()) {
      if (auto time = meta::parse_time(end.as_string()); time.ok()) return age_cell(start, *time);
    }
    return age_cell(start, now);
  }
};

}  // namespace

KindPtr make_deployment() { return std::make_shared<DeploymentKind>(); }
KindPtr make_replica_set() { return std::make_shared<ReplicaSetKind>(); }
KindPtr make_daemon_set() { return std::make_shared<DaemonSetKind>(); }
KindPtr make_controller_revision() { return std::make_shared<ControllerRevisionKind>(); }
KindPtr make_job() { return std::make_shared<JobKind>(); }

}  // namespace varda::apiserver
