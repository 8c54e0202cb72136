// The inputs of an agent: EdgeNodes, pods, pod records on the node's disk, and command line values.
//
// Input: an image flag or log query on the first line, then a JSON object. The object is tried as
// each of these.
#include <string>

#include "agent/models/plan.h"
#include "api/edgeai/edge_node.h"
#include "api/kind.h"
#include "base/check.h"
#include "codec/json.h"
#include "input.h"
#include "node/internal/environment.h"
#include "node/internal/record.h"
#include "node/internal/status.h"
#include "node/internal/volumes.h"
#include "node/log_stream.h"
#include "node/process_driver.h"
#include "os/testing/memory_file_system.h"

namespace {

using namespace varda;  // NOLINT: a program of one file
using codec::Json;
using node::internal::PodRecord;

class Config final : public node::internal::ConfigSource {
 public:
  Result<Data> get(Kind kind, const std::string& name) override {
    if (name == "missing") return Error(Code::kNotFound, "not there");
    return Data{{"key", kind == Kind::kSecret ? "secret" : "text"}, {"../up", "x"}, {"a/b", "y"}};
  }
};

void edge_node(const Json& json) {
  const auto node = api::EdgeNode::from_json(json);
  if (!node.ok()) return;
  const auto again = api::EdgeNode::from_json(node->to_json());
  CHECK(again.ok() && again->to_json() == node->to_json());
  const agent::models::Plan plan = agent::models::plan(node->spec, {});
  (void)agent::models::report(node->spec, {});
  for (const agent::models::Poll& poll : plan.poll) (void)agent::models::read_index(json, poll);
}

void pod(const Json& json) {
  PodRecord record = PodRecord::of(json);
  if (auto read = PodRecord::from_json(json); read.ok()) record = std::move(*read);
  if (const auto again = PodRecord::from_json(record.to_json()); again.ok())
    CHECK(again->to_json() == record.to_json());
  (void)node::internal::make_status(
      record, {.scheme = "process", .host_ip = "127.0.0.1", .now = "2024-01-01T00:00:00Z"});
  (void)node::internal::pod_phase(record);
  (void)node::internal::is_terminal(record);
  (void)record.restart_policy();

  Config config;
  os::testing::MemoryFileSystem fs;
  CHECK(fs.make_directories("/pods/a", 0755).ok());
  CHECK(os::write_file_atomically(fs, "/pods/other", "ours").ok());
  const bool host_path = codec::write_json(record.pod).find("hostPath") != std::string::npos;
  (void)node::internal::make_volumes(fs, "/pods/a", record, "127.0.0.1", config);
  // A pod's volumes stay in its directory, unless it requests a path of the machine.
  if (!host_path) {
    CHECK(fs.list("/").value() == std::vector<std::string>{"pods"});
    CHECK((fs.list("/pods").value() == std::vector<std::string>{"a", "other"}));
  }
  for (const Json& container : record.pod.at("spec/containers").as_array()) {
    const auto environment =
        node::internal::make_environment(record, "127.0.0.1", container, config);
    if (environment.ok())
      (void)node::internal::make_mounts(fs, "/pods/a", record, container, *environment);
  }
}

void image_flag(const std::string& text) {
  if (const auto image = node::parse_image_flag(text); image.ok()) {
    CHECK(!image->first.empty() && !image->second.empty());
    CHECK(image->first + "=" + image->second == text);
  }
  CHECK(node::image_base_name(text).find('/') == std::string::npos);
  (void)node::LogOptions::parse(text);
  (void)node::internal::expand(text, {{"A", "$(B)"}, {"B", "$(A)"}});
  const os::Path directory = node::pod_directory("/root/of/runner", text, text, text);
  CHECK(directory.lexically_normal().string().starts_with("/root/of/runner/pods/"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  image_flag(std::string(input.line()));
  const auto json = codec::parse_json(input.rest());
  if (!json.ok()) return 0;
  edge_node(*json);
  pod(*json);
  for (const api::Kind* kind : api::kinds()) (void)api::validate(*kind, *json);
  for (const api::NativeRule& rule : api::native_rules()) (void)rule.check(nullptr, *json);
  return 0;
}
