// What `varda up` remembers in its data directory: who runs, where it listens, which nodes it has.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "os/process.h"

namespace varda::app {

struct NodeSpec {
  std::string name;
  std::string layer;  // cloud, edge, device
  friend bool operator==(const NodeSpec&, const NodeSpec&) = default;
};

/// "edge0=edge", or "edge0" alone: cloud if the name begins so, else edge. kInvalid: not a DNS label, or no such layer.
Result<NodeSpec> parse_node(const std::string& text);

/// up.json. A restart with no flags continues with what it says.
struct UpState {
  os::ProcessId process;
  std::string address;  // "127.0.0.1:41873"
  std::string gateway;  // the same of the gateway; "" none
  std::vector<NodeSpec> nodes;
  std::map<std::string, std::string> images;           // of --image
  std::string driver, containerd_socket, pod_network;  // as the flags say; "": those of a first start
  std::vector<std::string> dataset_roots;              // "[NODE=]DIR", absolute
  std::vector<std::string> addresses;                  // "[NODE=]IP"
};
/// Nothing: there is no such file. kCorrupt: the nodes of this directory cannot be known. kForbidden: this user may not read the
/// file; the message names the owner and says what to do.
Result<std::optional<UpState>> read_state(const std::filesystem::path& data_dir);
Status write_state(const std::filesystem::path& data_dir, const UpState& state);

/// The login name, or "user 1000".
std::string user_name(uid_t id);

/// data_dir/nodes/NAME
std::filesystem::path node_directory(const std::filesystem::path& data_dir, const std::string& name);

}  // namespace varda::app
