// The worker API under the names of this program.
#pragma once

#include "worker/api.h"

namespace varda::trainapp {

using worker::WorkerApi;

}  // namespace varda::trainapp
