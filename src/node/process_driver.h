// Driver `process`: containers are child processes of the runner, with no image at all.
//
// A process gets no new privileges, no inherited descriptors, a group of its own, and a private root where the machine has
// namespaces. The private root is the machine's "/" with the container's mounts, without the files of the runner. User, groups,
// capabilities, seccomp and a read-only root are as the pod says; what cannot be kept is refused. It carries
// VARDA_RUNNER, VARDA_POD_UID, VARDA_CONTAINER and VARDA_ATTEMPT in its environment: by these it is found in /proc after the runner
// was killed, even between its start and the record of it, and so are children that left its group.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "node/driver.h"
#include "os/process.h"

namespace varda::node {

struct ProcessDriverOptions {
  os::Path root;                                   // of the runner: names it among others on this machine
  os::Path programs;                               // where varda, varda-serve ... stand; empty: beside the running program
  std::map<std::string, std::string> images;       // image name without tag -> command line, words separated by spaces
  std::map<std::string, std::string> environment;  // what every container gets (a proxy, a library path); the spec wins
  std::vector<os::Path> hidden;                    // containers see nothing of these and of `root`, but for their mounts
};

/// "registry/a/varda-serve:1.2@sha256:…" -> "varda-serve"
std::string image_base_name(const std::string& image);
/// "NAME=COMMAND" of --image. kInvalid says what is missing.
Result<std::pair<std::string, std::string>> parse_image_flag(const std::string& text);

/// `processes` outlives it. Destroying the driver leaves the containers running.
std::unique_ptr<Driver> make_process_driver(ProcessDriverOptions options, os::ProcessRunner& processes = os::real_processes());

}  // namespace varda::node
