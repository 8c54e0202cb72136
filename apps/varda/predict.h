// predict: sends images to a model and prints what it says.
#pragma once

#include "command.h"

namespace varda::app {

void add_predict_command(Program program);

}  // namespace varda::app
