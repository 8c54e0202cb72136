// Driver `process`: containers are child processes of the runner, without images.
//
// A process gets no new privileges, no inherited descriptors, and a new process group. If the
// machine supports namespaces, it also gets a private root: "/" with the container's mounts,
// without the runner's files. User, groups, capabilities, seccomp and a read-only root follow the
// pod; settings that cannot be enforced are refused. The environment contains VARDA_RUNNER,
// VARDA_POD_UID, VARDA_CONTAINER and VARDA_ATTEMPT. These marks identify the process in /proc after
// the runner was killed, even between a start and its record. They also identify children that left
// the group.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "node/driver.h"
#include "os/process.h"

namespace varda::node {

struct ProcessDriverOptions {
  os::Path root;                                   // of the runner; identifies it on this machine
  os::Path programs;                               // directory of varda, varda-serve ...; empty:
                                                   // that of the running program
  std::map<std::string, std::string> images;       // name without tag -> space-separated command
  std::map<std::string, std::string> environment;  // for every container; the spec wins
  std::vector<os::Path> hidden;                    // hidden like `root`, except for mounts
};

/// "registry/a/varda-serve:1.2@sha256:…" -> "varda-serve"
std::string image_base_name(const std::string& image);
/// "NAME=COMMAND" of --image. kInvalid: the message names the missing part.
Result<std::pair<std::string, std::string>> parse_image_flag(const std::string& text);

/// `processes` outlives it. Destroying the driver leaves the containers running.
std::unique_ptr<Driver> make_process_driver(ProcessDriverOptions options,
                                            os::ProcessRunner& processes = os::real_processes());

}  // namespace varda::node
