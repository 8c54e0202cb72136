#include "apiserver/internal/protobuf.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "codec/digest.h"
#include "meta/object.h"

namespace varda::apiserver {

using codec::Json;

namespace {

// MESSAGE, then one line per field: NUMBER NAME TYPE. Types: string, int, bool, bytes (base64 in JSON), map (of strings), bytesmap,
// time, intorstring, another message, or skip (what a client cannot say anything in: status, managedFields). A leading * is a
// list; a trailing ? a pointer in Go, where a zero is a value of its own.
constexpr std::string_view kMessages = R"(
ObjectMeta
1 name string
2 generateName string
3 namespace string
4 selfLink string
5 uid string
6 resourceVersion string
7 generation int
8 creationTimestamp time
9 deletionTimestamp time
10 deletionGracePeriodSeconds int?
11 labels map
12 annotations map
13 ownerReferences *OwnerReference
14 finalizers *string
17 managedFields skip
OwnerReference
1 kind string
3 name string
4 uid string
5 apiVersion string
6 controller bool?
7 blockOwnerDeletion bool?
Namespace
1 metadata ObjectMeta
2 spec NamespaceSpec
3 status skip
NamespaceSpec
1 finalizers *string
ConfigMap
1 metadata ObjectMeta
2 data map
3 binaryData bytesmap
4 immutable bool?
Secret
1 metadata ObjectMeta
2 data bytesmap
3 type string
4 stringData map
5 immutable bool?
ServiceAccount
1 metadata ObjectMeta
4 automountServiceAccountToken bool?
Service
1 metadata ObjectMeta
2 spec ServiceSpec
3 status skip
ServiceSpec
1 ports *ServicePort
2 selector map
3 clusterIP string
4 type string
5 externalIPs *string
7 sessionAffinity string
8 loadBalancerIP string
10 externalName string
11 externalTrafficPolicy string
12 healthCheckNodePort int
13 publishNotReadyAddresses bool
17 ipFamilyPolicy string?
18 clusterIPs *string
19 ipFamilies *string
ServicePort
1 name string
2 protocol string
3 port int
4 targetPort intorstring
5 nodePort int
6 appProtocol string?
LabelSelector
1 matchLabels map
2 matchExpressions *LabelSelectorRequirement
LabelSelectorRequirement
1 key string
2 operator string
3 values *string
Pod
1 metadata ObjectMeta
2 spec PodSpec
3 status skip
PodTemplateSpec
1 metadata ObjectMeta
2 spec PodSpec
PodSpec
2 containers *Container
3 restartPolicy string
4 terminationGracePeriodSeconds int?
5 activeDeadlineSeconds int?
6 dnsPolicy string
7 nodeSelector map
8 serviceAccountName string
9 serviceAccount string
10 nodeName string
11 hostNetwork bool
12 hostPID bool
13 hostIPC bool
14 securityContext Empty
16 hostname string
17 subdomain string
19 schedulerName string
20 initContainers *Container
21 automountServiceAccountToken bool?
24 priorityClassName string
Empty
Container
1 name string
2 image string
3 command *string
4 args *string
5 workingDir string
6 ports *ContainerPort
7 env *EnvVar
8 resources Empty
13 terminationMessagePath string
14 imagePullPolicy string
16 stdin bool
17 stdinOnce bool
18 tty bool
20 terminationMessagePolicy string
ContainerPort
1 name string
2 hostPort int
3 containerPort int
4 protocol string
5 hostIP string
EnvVar
1 name string
2 value string
Deployment
1 metadata ObjectMeta
2 spec DeploymentSpec
3 status skip
DeploymentSpec
1 replicas int?
2 selector LabelSelector
3 template PodTemplateSpec
4 strategy DeploymentStrategy
5 minReadySeconds int
6 revisionHistoryLimit int?
7 paused bool
9 progressDeadlineSeconds int?
DeploymentStrategy
1 type string
Job
1 metadata ObjectMeta
2 spec JobSpec
3 status skip
JobSpec
1 parallelism int?
2 completions int?
3 activeDeadlineSeconds int?
4 selector LabelSelector
5 manualSelector bool?
6 template PodTemplateSpec
7 backoffLimit int?
8 ttlSecondsAfterFinished int?
9 completionMode string?
10 suspend bool?
DeleteOptions
1 gracePeriodSeconds int?
2 preconditions Preconditions
3 orphanDependents bool?
4 propagationPolicy string?
5 dryRun *string
Preconditions
1 uid string?
2 resourceVersion string?
Eviction
1 metadata ObjectMeta
2 deleteOptions DeleteOptions
)";

struct Field {
  std::string name, type;
  bool list = false;
  bool pointer = false;
};
using Message = std::map<std::uint32_t, Field>;

std::map<std::string, Message, std::less<>> parse_messages(std::string_view text) {
  std::map<std::string, Message, std::less<>> out;
  Message* current = nullptr;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) continue;
    const std::size_t first = line.find(' ');
    if (first == std::string_view::npos) {
      current = &out[std::string(line)];
      continue;
    }
    const std::size_t second = line.find(' ', first + 1);
    Field field;
    field.name = line.substr(first + 1, second - first - 1);
    std::string_view type = line.substr(second + 1);
    if (type.starts_with('*')) {
      field.list = true;
      type.remove_prefix(1);
    }
    if (type.ends_with('?')) {
      field.pointer = true;
      type.remove_suffix(1);
    }
    field.type = type;
    (*current)[static_cast<std::uint32_t>(std::stoul(std::string(line.substr(0, first))))] = std::move(field);
  }
  return out;
}

const std::map<std::string, Message, std::less<>>& messages() {
  static const auto parsed = parse_messages(kMessages);
  return parsed;
}

// One field on the wire.
struct Item {
  std::uint32_t number = 0;
  std::uint32_t wire = 0;  // 0 varint, 2 bytes
  std::uint64_t value = 0;
  std::string_view bytes;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : left_(bytes) {}
  bool done() const { return left_.empty(); }
  Result<Item> next() {
    TRY(const std::uint64_t tag, varint());
    Item item{.number = static_cast<std::uint32_t>(tag >> 3), .wire = static_cast<std::uint32_t>(tag & 7), .value = 0, .bytes = {}};
    if (item.wire == 0) {
      TRY(item.value, varint());
      return item;
    }
    if (item.wire != 2) return Error(Code::kUnsupported, "protobuf wire type " + std::to_string(item.wire) + " is not used here");
    TRY(const std::uint64_t size, varint());
    if (size > left_.size()) return Error(Code::kInvalid, "protobuf: a field is longer than its message");
    item.bytes = left_.substr(0, size);
    left_.remove_prefix(size);
    return item;
  }

 private:
  Result<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (left_.empty()) return Error(Code::kInvalid, "protobuf: the message ends inside a number");
      const auto byte = static_cast<unsigned char>(left_.front());
      left_.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    return Error(Code::kInvalid, "protobuf: a number is too long");
  }
  std::string_view left_;
};

Result<Json> decode_message(std::string_view name, std::string_view bytes, int depth);

Result<std::pair<std::string, std::string>> decode_entry(std::string_view bytes) {
  std::pair<std::string, std::string> entry;
  for (Reader reader(bytes); !reader.done();) {
    TRY(const Item item, reader.next());
    (item.number == 1 ? entry.first : entry.second) = item.bytes;
  }
  return entry;
}

// {1: seconds, 2: nanoseconds}; an empty message is no time.
Result<Json> decode_time(std::string_view bytes) {
  std::int64_t seconds = 0;
  for (Reader reader(bytes); !reader.done();) {
    TRY(const Item item, reader.next());
    if (item.number == 1) seconds = static_cast<std::int64_t>(item.value);
  }
  if (seconds <= 0) return Json(nullptr);
  return Json(meta::format_time(WallTime(std::chrono::seconds(seconds))));
}

// {1: which, 2: number, 3: text}.
Result<Json> decode_int_or_string(std::string_view bytes) {
  std::uint64_t which = 0;
  std::int64_t number = 0;
  std::string text;
  for (Reader reader(bytes); !reader.done();) {
    TRY(const Item item, reader.next());
    if (item.number == 1) which = item.value;
    if (item.number == 2) number = static_cast<std::int64_t>(item.value);
    if (item.number == 3) text = item.bytes;
  }
  if (which == 1) return Json(text);
  return number == 0 ? Json(nullptr) : Json(number);
}

Result<Json> decode_value(const Field& field, const Item& item, int depth) {
  if (field.type == "int") return Json(static_cast<std::int64_t>(item.value));
  if (field.type == "bool") return Json(item.value != 0);
  if (field.type == "string") return Json(item.bytes);
  if (field.type == "bytes") return Json(codec::base64(item.bytes));
  if (field.type == "time") return decode_time(item.bytes);
  if (field.type == "intorstring") return decode_int_or_string(item.bytes);
  return decode_message(field.type, item.bytes, depth + 1);
}

// Go writes zeros of what is no pointer: they say nothing.
bool says_nothing(const Field& field, const Json& value) {
  if (value.is_null()) return true;
  if (field.pointer || field.list) return false;
  return (value.is_string() && value.as_string().empty()) || (value.is_integer() && value.as_integer() == 0) ||
         (value.is_bool() && !value.as_bool()) || (value.is_object() && value.empty());
}

Result<Json> decode_message(std::string_view name, std::string_view bytes, int depth) {
  if (depth > 16) return Error(Code::kInvalid, "protobuf: nested too deep");
  const auto known = messages().find(name);
  if (known == messages().end()) return Error(Code::kUnsupported, "protobuf: no such message " + std::string(name));
  Json out = Json::object();
  for (Reader reader(bytes); !reader.done();) {
    TRY(const Item item, reader.next());
    const auto field = known->second.find(item.number);
    if (field == known->second.end()) {
      return Error(Code::kUnsupported, "field " + std::to_string(item.number) + " of " + std::string(name) +
                                           " is not understood in protobuf form; send JSON");
    }
    const Field& is = field->second;
    if (is.type == "skip") continue;
    if (is.type == "map" || is.type == "bytesmap") {
      TRY(auto entry, decode_entry(item.bytes));
      out[is.name].set(entry.first, is.type == "map" ? entry.second : codec::base64(entry.second));
      continue;
    }
    TRY(Json value, decode_value(is, item, depth));
    if (is.list) {
      out[is.name].push_back(std::move(value));
    } else if (!says_nothing(is, value)) {
      out.set(is.name, std::move(value));
    }
  }
  return out;
}

}  // namespace

Result<Json> parse_kubernetes_protobuf(std::string_view bytes) {
  constexpr std::string_view kMagic("k8s\0", 4);
  if (!bytes.starts_with(kMagic)) return Error(Code::kInvalid, "protobuf: the envelope is missing");
  std::string api_version;
  std::string kind;
  std::optional<std::string_view> raw;
  for (Reader reader(bytes.substr(kMagic.size())); !reader.done();) {
    TRY(const Item item, reader.next());
    if (item.number == 1) {
      for (Reader type(item.bytes); !type.done();) {
        TRY(const Item part, type.next());
        (part.number == 1 ? api_version : kind) = part.bytes;
      }
    } else if (item.number == 2) {
      raw = item.bytes;
    }
  }
  if (!raw) return Error(Code::kInvalid, "protobuf: the envelope is empty");
  static constexpr std::array kKinds = {"Namespace", "ConfigMap",  "Secret", "ServiceAccount", "Service",
                                        "Pod",       "Deployment", "Job",    "DeleteOptions",  "Eviction"};
  if (std::find(kKinds.begin(), kKinds.end(), kind) == kKinds.end()) {
    return Error(Code::kUnsupported, "kind " + kind + " is not understood in protobuf form; send JSON");
  }
  TRY(Json object, decode_message(kind, *raw, 0));
  object.set("apiVersion", api_version);
  object.set("kind", kind);
  return object;
}

}  // namespace varda::apiserver
