// Driver `containerd`: containers of any image that containerd has, started over its CRI socket.
//
// Each pod is a sandbox with the pod's namespaces, each run of a container a CRI container in it. Both carry the runner's root and
// the pod's uid as labels: by these they are found again after the runner was killed, even between their start and the record of
// it. containerd keeps them running, and remembers how they ended, while no runner is there.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/context.h"
#include "net/grpc_client.h"
#include "node/driver.h"

namespace varda::node {

inline constexpr const char* kContainerdSocket = "/run/containerd/containerd.sock";

/// Where pods without hostNetwork are: in networks of their own, as containerd's CNI plug-ins make them, or in the node's, each
/// with an address of its own there, as processes are.
enum class PodNetwork { kCni, kNode };

struct ContainerdDriverOptions {
  os::Path root;  // of the runner: names it among others on this machine
  std::string socket = kContainerdSocket;
  PodNetwork pod_network = PodNetwork::kCni;
  std::chrono::milliseconds look_period{1000};  // between looks at what runs, while anything does
};

/// "web" -> "docker.io/library/web:latest": the name under which containerd looks for what a pod calls so.
std::string cri_image_name(const std::string& image);

/// Asks who answers at the socket: "containerd 1.6.20". kUnavailable, kUnsupported: nobody, or no CRI; the message names the socket
/// and says what to do.
Result<std::string> ask_containerd(const Context& ctx, const std::string& socket);

/// Leaves a note of the socket below the root, so that end_containers() finds what runs. Errors are those of ask_containerd().
/// Destroying the driver leaves the containers running.
Result<std::unique_ptr<Driver>> make_containerd_driver(const Context& ctx, ContainerdDriverOptions options);
/// The same over a client that is there already; leaves no note.
std::unique_ptr<Driver> make_containerd_driver(ContainerdDriverOptions options, std::unique_ptr<net::GrpcClient> grpc);

}  // namespace varda::node
