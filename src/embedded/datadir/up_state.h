// State of `varda up` in its data directory: process, addresses, nodes, flags.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "os/process.h"

namespace varda::datadir {

struct NodeSpec {
  std::string name;
  std::string layer;  // cloud, edge, device
  friend bool operator==(const NodeSpec&, const NodeSpec&) = default;
};

/// "edge0=edge", or a name alone: layer cloud if the name begins with "cloud", else edge. kInvalid:
/// not a DNS label, or an unknown layer.
Result<NodeSpec> parse_node(const std::string& text);

/// The content of up.json. A restart without flags uses these values.
struct UpState {
  os::ProcessId process;
  std::string address;   // "127.0.0.1:41873"
  std::string gateway;   // address of the gateway; "": none
  std::string registry;  // address of the registry; "": unknown; "off": none
  std::vector<NodeSpec> nodes;
  std::map<std::string, std::string> images;           // from --image
  std::string driver, containerd_socket, pod_network;  // from the flags; "": the defaults
  std::vector<std::string> dataset_roots;              // "[NODE=]DIR", absolute
  std::vector<std::string> addresses;                  // "[NODE=]IP"
};
/// Nothing: no such file. kCorrupt: the file is damaged, so the nodes are unknown. kForbidden: this
/// user may not read the file; the message names the owner and a remedy.
Result<std::optional<UpState>> read_state(const std::filesystem::path& data_dir);
Status write_state(const std::filesystem::path& data_dir, const UpState& state);

/// The login name, or "user 1000".
std::string user_name(uid_t id);

/// data_dir/nodes/NAME
std::filesystem::path node_directory(const std::filesystem::path& data_dir,
                                     const std::string& name);

}  // namespace varda::datadir
