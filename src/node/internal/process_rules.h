// The user and the rights of a container of the process driver, as its spec promises, or why they cannot be kept. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "node/driver.h"
#include "os/privileges.h"

namespace varda::node::internal {

/// The user of our own images, as in the images that we build.
inline constexpr std::uint32_t kOwnImagesUser = 65532;

/// The user that runs the containers.
struct RunnerUser {
  std::uint32_t user = 0, group = 0;
  std::vector<std::uint32_t> groups;
  bool becomes_others = false;  // real root
};
RunnerUser this_user();

enum class ImageKind {
  kOwn,     // our own program
  kMapped,  // a command of --image: as an image without a user, it runs as the runner
};

struct ProcessRules {
  std::optional<os::User> user;  // nothing: the runner's
  std::optional<os::Rights> rights;
  bool read_only_root = false;
};

/// Reads `security` and `pod` of the configuration. kForbidden: a promise that this runner cannot keep, in words for a user.
Result<ProcessRules> process_rules(const ContainerConfig& config, ImageKind image, const RunnerUser& runner);

}  // namespace varda::node::internal
