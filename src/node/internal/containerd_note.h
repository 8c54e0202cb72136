// Labels and location of the containerd driver's containers, for code that runs without the driver.
#pragma once

#include <optional>
#include <string>

#include "os/file_system.h"

namespace varda::node::internal {

inline constexpr const char* kRunnerLabel = "edgeai.io/runner";
inline constexpr const char* kNetworkLabel = "edgeai.io/network";  // of a sandbox: "node" or "pod"
// Labels that other tools know (k8s.io/kubernetes, pkg/kubelet/types/labels.go).
inline constexpr const char* kPodUidLabel = "io.kubernetes.pod.uid";
inline constexpr const char* kPodNameLabel = "io.kubernetes.pod.name";
inline constexpr const char* kPodNamespaceLabel = "io.kubernetes.pod.namespace";
inline constexpr const char* kContainerLabel = "io.kubernetes.container.name";

/// ROOT/containerd.json: exists as long as containers of this root may be in containerd.
struct ContainerdNote {
  std::string socket;
};
Status write_containerd_note(const os::Path& root, const ContainerdNote& note);
std::optional<ContainerdNote> read_containerd_note(const os::Path& root);
Status remove_containerd_note(const os::Path& root);

}  // namespace varda::node::internal
