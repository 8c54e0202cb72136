#include "api/sedna/pod_shape.h"

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "api/rule.h"

namespace varda::api {

namespace {

constexpr std::string_view kLabelOrEmpty = "^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$";
constexpr std::size_t kContainersMax = 16;

// The limits of texts and lists are far above normal use. They bound the estimated cost of CEL
// rules.

Schema made(Schema::Type type, std::string_view description) {
  Schema schema;
  schema.type = type;
  schema.description = std::string(description);
  return schema;
}

Schema text(std::size_t length_max, std::string_view description, std::string_view pattern = "") {
  Schema schema = made(Schema::Type::kString, description);
  schema.length_max = length_max;
  schema.pattern = std::string(pattern);
  return schema;
}

Schema one_of_texts(std::vector<std::string> values, std::string_view description) {
  Schema schema = made(Schema::Type::kString, description);
  schema.one_of = std::move(values);
  return schema;
}

Schema number(std::int64_t min, std::int64_t max, std::string_view description) {
  Schema schema = made(Schema::Type::kInteger, description);
  schema.format = max > 2147483647 ? "int64" : "int32";
  schema.minimum = min;
  schema.maximum = max;
  return schema;
}

Schema flag(std::string_view description) { return made(Schema::Type::kBoolean, description); }

/// An object with members of core/v1 that are not described here.
Schema open(std::string_view description, std::vector<Property> properties = {}) {
  Schema schema = made(Schema::Type::kObject, description);
  schema.preserve_unknown = true;
  schema.properties = std::move(properties);
  return schema;
}

Schema list(Schema item, std::size_t items_max, std::string_view description) {
  Schema schema = made(Schema::Type::kArray, description);
  schema.items = std::make_shared<Schema>(std::move(item));
  schema.items_max = items_max;
  return schema;
}

Schema map_of_texts(std::string_view description) {
  Schema schema = made(Schema::Type::kObject, description);
  schema.additional = std::make_shared<Schema>(made(Schema::Type::kString, ""));
  schema.additional->length_max = 262144;
  return schema;
}

Schema texts(std::string_view description) { return list(text(65536, ""), 512, description); }

Schema env() {
  return list(open("One variable.",
                   {{"name",
                     [] {
                       Schema name = text(1024, "Name of the variable.");
                       name.length_min = 1;
                       return name;
                     }(),
                     true},
                    {"value", text(65536, "Value as text. Put numbers in quotes.")},
                    {"valueFrom",
                     open("Source of the value: a Secret, a ConfigMap or a field of the pod.")}}),
              512,
              "Environment variables. Varda adds more (docs/guides/joint-inference.md), but never "
              "replaces one of these.");
}

Schema ports() {
  return list(
      open("One port.",
           {{"containerPort", number(1, 65535, "The port on which the container listens."), true},
            {"hostPort", number(0, 65535, "The port of the node that leads to containerPort.")},
            {"name", text(15, "Name of the port.")},
            {"protocol",
             one_of_texts({"TCP", "UDP", "SCTP"}, "Protocol of the port. Default: TCP.")}}),
      64,
      "Ports on which the container listens. Edge workers call the first port of the cloud worker, "
      "unless cloudWorker.port "
      "is set.");
}

Schema volume_mounts() {
  Schema name = text(63, "Name of a volume of the pod."),
         path = text(4096, "Path of the volume in the container.");
  name.length_min = path.length_min = 1;
  return list(
      open("One mounted volume.",
           {{"name", std::move(name), true},
            {"mountPath", std::move(path), true},
            {"readOnly", flag("Whether the volume is read-only.")},
            {"subPath", text(4096, "Path in the volume to mount. Default: the whole volume.")}}),
      64, "Mounted volumes of the pod. The model is mounted as well, read-only at MODEL_PATH.");
}

Schema container(std::string_view description) {
  Schema image = text(1024, "Image of the container.", "^[^ ]*$");
  image.length_min = 1;
  return open(
      description,
      {{"name", text(63, "Unique name of the container in the pod. Default: worker, worker-1 ...",
                     kLabelOrEmpty)},
       {"image", std::move(image), true},
       {"imagePullPolicy",
        one_of_texts({"Always", "IfNotPresent", "Never"}, "When the image is pulled.")},
       {"command", texts("Command that replaces the image's entry point.")},
       {"args", texts("Arguments of the command.")},
       {"workingDir", text(4096, "Working directory of the command.")},
       {"env", env()},
       {"ports", ports()},
       {"resources", open("Requested resources (requests) and maximum resources (limits).",
                          {{"requests", open("Amounts by name: {memory: 64Mi, cpu: 100m}.")},
                           {"limits", open("Amounts by name: {memory: 512Mi}.")}})},
       {"volumeMounts", volume_mounts()},
       {"readinessProbe", open("How the kubelet checks that the container is ready. Without it, "
                               "the container is ready while it runs.")},
       {"livenessProbe", open("How the kubelet checks that the container is alive. If not, the "
                              "kubelet restarts it.")},
       {"startupProbe", open("How the kubelet checks that the container has started.")},
       {"securityContext", open("Rights of the container on the node.")}});
}

/// Each mount of a container names a volume of the pod.
Rule mounts_are_volumes(const std::string& containers) {
  Rule rule;
  rule.cel = "!has(self." + containers + ") || self." + containers +
             ".all(c, !has(c.volumeMounts) || c.volumeMounts.all(m, has(self.volumes) && "
             "self.volumes.exists(v, v.name == m.name)))";
  rule.message = "each of volumeMounts must name one of volumes";
  rule.reason = "FieldValueInvalid";
  rule.field_path = "." + containers;
  rule.check = [containers](const Json& self) {
    std::set<std::string> known;
    for (const Json& volume : self["volumes"].as_array()) known.insert(volume["name"].as_string());
    std::vector<Violation> found;
    std::size_t at = 0;
    for (const Json& container : self[containers].as_array()) {
      const std::string mounts = "." + containers + "[" + std::to_string(at++) + "].volumeMounts[";
      std::size_t index = 0;
      for (const Json& mount : container["volumeMounts"].as_array()) {
        const std::string field = mounts + std::to_string(index++) + "].name";
        const Json& name = mount["name"];
        if (!name.is_string() || known.contains(name.as_string())) continue;
        found.push_back(rules::invalid(field, name, "must be the name of one of volumes"));
      }
    }
    return found;
  };
  return rule;
}

Schema pod_metadata_shape() {
  return open("Labels and annotations of the pod. Varda adds more.",
              {{"labels", map_of_texts("Labels.")}, {"annotations", map_of_texts("Annotations.")}});
}

}  // namespace

Schema pod_spec_shape(PodText docs) {
  Schema containers = list(
      container("One container."), kContainersMax,
      "Containers of the pod. Each gets the model, and the environment of the worker contract.");
  containers.items_min = 1;
  Schema volume_name = text(63, "Name of the volume.");
  volume_name.length_min = 1;
  Schema selector = map_of_texts("Labels of the node, for the scheduler.");
  Schema spec = open(
      "A PodSpec (core/v1). Members that are not described here pass through unchanged.",
      {{"containers", std::move(containers), true},
       {"initContainers",
        list(container("One container that runs before the others."), kContainersMax,
             "Containers that run one after the other, before the others start.")},
       {"volumes", list(open("One volume, of any type: {name: video, emptyDir: {}}.",
                             {{"name", std::move(volume_name), true}}),
                        64, "Volumes that containers can mount.")},
       {"nodeName", text(253, "Name of the node, as in Sedna. Same as nodeName of the worker.",
                         "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$")},
       {"nodeSelector", std::move(selector)},
       {"hostNetwork", flag("Whether the pod uses the node's network.")},
       {"restartPolicy",
        one_of_texts({"Always", "OnFailure", "Never"}, "Whether ended containers are restarted.")},
       {"serviceAccountName", text(253,
                                   "Service account of the pod. At the edge, its token is mounted "
                                   "only if automountServiceAccountToken is true.")},
       {"imagePullSecrets", list(open("One Secret.", {{"name", text(253, "Name of the Secret.")}}),
                                 16, "Secrets for the registries of the images.")},
       {"tolerations", list(open("One tolerated taint."), 64,
                            "Tolerated taints of nodes. At the edge, Varda adds those that let the "
                            "pod run while the node is offline.")},
       {"affinity", open("More rules for the choice of the node, for the scheduler.")},
       {"securityContext", open("Rights of all containers on the node.")},
       {"terminationGracePeriodSeconds",
        number(0, 86400, "Seconds that the pod may take to end after a stop request.")}});
  spec.rules.push_back(rules::each_unique("containers", "name"));
  for (const char* list : {"containers", "initContainers"})
    spec.rules.push_back(mounts_are_volumes(list));
  spec.terse = docs == PodText::kBare;
  return spec;
}

Schema worker_spec_shape(PodText docs) {
  Schema shape = pod_spec_shape(docs);
  for (Property& one : shape.properties) one.required = false;
  // Only members that rules read. Others are checked when the Pod is made.
  Schema image = text(1024, "Image of the container.");
  image.length_min = 1;
  Schema containers = list(open("One container.", {{"image", std::move(image), true}}),
                           kContainersMax, "Containers of the pod.");
  containers.items_min = 1;
  Schema spec = open("The PodSpec, if workerSpec has the form {metadata, spec}.",
                     {{"containers", std::move(containers), true},
                      {"nodeName", text(253, "Name of the node.")},
                      {"restartPolicy", text(16, "Whether ended containers are restarted.")}});
  spec.terse = shape.terse;
  shape.properties.push_back({"metadata", pod_metadata_shape()});
  shape.properties.push_back({"spec", std::move(spec)});
  const rules::Member containers_member{"containers", rules::Shape::kList};
  const rules::Member spec_member{"spec", rules::Shape::kObject};
  shape.rules.push_back(rules::any_required({containers_member, spec_member},
                                            "the containers of a PodSpec, or {metadata, spec}"));
  shape.rules.push_back(
      rules::forbidden_with(spec_member, {containers_member},
                            "may not be set together with containers: both describe the same pod"));
  return shape;
}

Schema pod_template_shape(PodText docs) {
  Schema shape =
      open("", {{"metadata", pod_metadata_shape()}, {"spec", pod_spec_shape(docs), true}});
  shape.terse = docs == PodText::kBare;
  return shape;
}

}  // namespace varda::api
