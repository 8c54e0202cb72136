// The model's directory under the names of this program.
#pragma once

#include "worker/model_directory.h"

namespace varda::trainapp {

using worker::digest_of_file;
using worker::followed;
using worker::ModelSource;
using worker::read_model;
using worker::read_regular;
using worker::write_beside;

}  // namespace varda::trainapp
