// User and rights of a container of the process driver, as the spec demands, or the reason why that
// is impossible. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "node/driver.h"
#include "os/privileges.h"

namespace varda::node::internal {

/// The user of varda's images, also in the images that we build.
inline constexpr std::uint32_t kOwnImagesUser = 65532;

/// The user that runs the containers.
struct RunnerUser {
  std::uint32_t user = 0, group = 0;
  std::vector<std::uint32_t> groups;
  bool becomes_others = false;  // real root: may change users
};
RunnerUser this_user();

enum class ImageKind {
  kOwn,     // a varda program
  kMapped,  // a command of --image; runs as the runner, like an image without a user
};

struct ProcessRules {
  std::optional<os::User> user;  // nothing: the runner's user
  std::optional<os::Rights> rights;
  bool read_only_root = false;
};

/// Reads `security` and `pod` of the configuration. kForbidden: a demand that this runner cannot
/// enforce; the message is for users.
Result<ProcessRules> process_rules(const ContainerConfig& config, ImageKind image,
                                   const RunnerUser& runner);

}  // namespace varda::node::internal
