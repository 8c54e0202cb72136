// `varda train` as another program.
#pragma once

#include "base/result.h"

namespace varda::app {

/// Replaces this process by the varda-train in the program's directory. `arguments` are those after
/// "train", with a null at the end. Returns only if that fails.
Error exec_train(char** arguments);

}  // namespace varda::app
