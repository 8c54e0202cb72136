// train: runs varda-train with the same arguments. main() starts the program before it parses, so
// the flags here serve the help and the completion.
#include "train_command.h"

#include <cerrno>
#include <memory>
#include <system_error>
#include <unistd.h>
#include <vector>

#include "../train_flags.h"
#include "command.h"
#include "os/process.h"

namespace varda::app {

Error exec_train(char** arguments) {
  const os::Path program = os::self_path().parent_path() / "varda-train";
  std::string name = "varda-train";
  std::vector<char*> argv{name.data()};
  for (; *arguments != nullptr; ++arguments) argv.push_back(*arguments);
  argv.push_back(nullptr);
  ::execv(program.c_str(), argv.data());
  const int error = errno;
  if (error == ENOENT)
    return Error(Code::kNotFound, program.string() +
                                      " does not exist: install varda-train beside "
                                      "varda");
  return Error(Code::kUnavailable,
               program.string() + ": " + std::generic_category().message(error));
}

void add_train_command(Program program) {
  const auto flags = std::make_shared<TrainFlags>();
  CLI::App* command =
      program.parser.add_subcommand("train", "train an ONNX model (runs varda-train)");
  add_train_flags(*command, *flags);
  // The callback keeps the flags alive.
  command->callback([&chosen = program.chosen, flags] {
    chosen = [](const Context&) -> Status {
      return Error(Code::kInvalid, "train must be the first argument of varda");
    };
  });
}

}  // namespace varda::app
