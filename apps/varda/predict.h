// predict: sends images or tensors to a model and prints its answers.
#pragma once

#include "command.h"

namespace varda::app {

void add_predict_command(Program program);

}  // namespace varda::app
