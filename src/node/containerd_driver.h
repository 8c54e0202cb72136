// Driver `containerd`: runs any image that containerd has, over the CRI socket.
//
// Each pod is a sandbox with the pod's namespaces. Each run of a container is a CRI container in
// the sandbox. Both carry labels with the runner's root and the pod's uid. The labels identify them
// after the runner was killed, even between a start and its record. Without a runner, containerd
// keeps them running and remembers their exits.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "base/context.h"
#include "net/grpc_client.h"
#include "node/driver.h"

namespace varda::node {

inline constexpr const char* kContainerdSocket = "/run/containerd/containerd.sock";

/// Network of pods without hostNetwork. kCni: each pod has a network from containerd's CNI
/// plug-ins. kNode: pods use the node's network, each with a separate address, like processes.
enum class PodNetwork { kCni, kNode };

struct ContainerdDriverOptions {
  os::Path root;  // of the runner; identifies it among other runners of this machine
  std::string socket = kContainerdSocket;
  PodNetwork pod_network = PodNetwork::kCni;
  std::chrono::milliseconds poll_period{1000};  // between polls of the running containers
};

/// "web" -> "docker.io/library/web:latest": containerd's name for an image name of a pod.
std::string cri_image_name(const std::string& image);

/// Asks for the runtime's version: "containerd 1.6.20". kUnavailable: no answer. kUnsupported: no
/// CRI. The message names the socket and the remedy.
Result<std::string> containerd_version(const Context& ctx, const std::string& socket);

/// Writes a note of the socket below the root, so that end_containers() finds the containers.
/// Errors are those of containerd_version(). Destroying the driver leaves the containers running.
Result<std::unique_ptr<Driver>> make_containerd_driver(const Context& ctx,
                                                       ContainerdDriverOptions options);
/// The same over an existing client; writes no note.
std::unique_ptr<Driver> make_containerd_driver(ContainerdDriverOptions options,
                                               std::unique_ptr<net::GrpcClient> grpc);

}  // namespace varda::node
