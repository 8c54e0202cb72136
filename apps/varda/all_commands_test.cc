// Tests every command with the parser that main() builds.
#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <sstream>
#include <unistd.h>

#include "../config_file.h"
#include "../help.h"
#include "command.h"
#include "completion.h"
#include "os/testing/child.h"
#include "os/testing/test_directory.h"

namespace varda::app {
namespace all_commands_test {

using ::testing::HasSubstr;
using ::testing::Not;

/// The program's parser. Use one for each command line, as a process does.
struct Parser {
  Parser() {
    app.formatter(std::make_shared<HelpFormatter>(80));
    app.require_subcommand(1);
    add_all_commands(Program{app, globals, chosen, before});
  }

  /// Returns the error message, or "".
  std::string parse(const std::vector<std::string>& arguments) {
    try {
      parse_with_config(app, arguments);
    } catch (const CLI::ParseError& error) {
      return error.what();
    }
    return "";
  }

  CLI::App& command(const std::vector<std::string>& path) {
    CLI::App* out = &app;
    for (const std::string& name : path) out = out->get_subcommand(name);
    return *out;
  }

  CLI::App app{"", "varda"};
  Globals globals;
  Run chosen;
  std::function<Status()> before;
};

void add_paths(const CLI::App& app, const std::vector<std::string>& path,
               std::vector<std::vector<std::string>>& out) {
  if (!path.empty()) out.push_back(path);
  for (const CLI::App* below : app.get_subcommands({})) {
    std::vector<std::string> longer = path;
    longer.push_back(below->get_name());
    add_paths(*below, longer, out);
  }
}

std::vector<std::vector<std::string>> all_paths() {
  std::vector<std::vector<std::string>> out;
  add_paths(Parser().app, {}, out);
  return out;
}

/// The commands that have --config.
std::vector<std::vector<std::string>> daemons() {
  Parser parser;
  std::vector<std::vector<std::string>> out = all_paths();
  std::erase_if(out, [&](const auto& path) {
    return parser.command(path).get_option_no_throw("--config") == nullptr;
  });
  return out;
}

/// Returns a valid value of the flag.
std::string sample(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return "true";
  if (!option.get_default_str().empty()) return option.get_default_str();
  const std::string type = option.get_type_name();
  if (const std::size_t open = type.find('{'); open != std::string::npos)
    return type.substr(open + 1, type.find_first_of(",}", open) - open - 1);
  return type.find("INT") == std::string::npos ? "some value" : "7";
}

std::vector<std::string> with(std::vector<std::string> arguments, std::vector<std::string> more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

/// Returns the positional arguments that the command requires.
std::vector<std::string> positionals(const CLI::App& command) {
  std::vector<std::string> out;
  for (const CLI::Option* option : command.get_options())
    if (option->get_positional() && option->get_required()) out.push_back("word");
  return out;
}

TEST(CommandConfigFile, EveryDaemonCommandReadsAConfigFile) {
  EXPECT_THAT(daemons(),
              ::testing::UnorderedElementsAre(
                  std::vector<std::string>{"up"}, std::vector<std::string>{"apiserver"},
                  std::vector<std::string>{"operator"}, std::vector<std::string>{"gateway"},
                  std::vector<std::string>{"registry"}, std::vector<std::string>{"agent"},
                  std::vector<std::string>{"artifacts", "serve"}));
}

TEST(CommandConfigFile, SetsEveryFlagOfTheCommand) {
  const os::testing::TestDirectory directory;
  for (const auto& path : daemons()) {
    Parser parser;
    CLI::App& command = parser.command(path);
    std::string text = "# every flag\n\n";
    std::map<std::string, std::string> expected;
    for (const CLI::Option* option : command.get_options()) {
      if (!option->get_configurable() || option->get_lnames().empty()) continue;
      const std::string name = option->get_lnames().front();
      expected[name] = sample(*option);
      text += name + " = " + expected[name] + "\n";
    }
    ASSERT_GE(expected.size(), 3u);
    const std::string file = directory.write("all.conf", text);
    const auto arguments = with(path, with(positionals(command), {"--config", file}));
    ASSERT_EQ(parser.parse(arguments), "") << path.front() << "\n" << text;
    for (const auto& [name, value] : expected) {
      const CLI::Option* option = command.get_option("--" + name);
      ASSERT_EQ(option->count(), 1u) << path.front() << " --" << name;
      if (!option->get_type_name().starts_with("TIME")) {
        EXPECT_EQ(option->results().front(), value) << path.front() << " --" << name;
      }
    }
    EXPECT_TRUE(parser.chosen) << path.front();
  }
}

TEST(CommandConfigFile, ErrorNamesFileAndLine) {
  const os::testing::TestDirectory directory;
  const struct {
    const char *text, *expected;
  } cases[] = {
      {"log-level = info\n\nlisten-at = 1\n",
       "wrong.conf:3: `varda NAME` has no flag \"listen-at\""},
      {"config = other\n", "wrong.conf:1: `varda NAME` has no flag \"config\""},
      {"help = true\n", "wrong.conf:1: `varda NAME` has no flag \"help\""},
      {"--log-level = info\n", "wrong.conf:1: `varda NAME` has no flag \"--log-level\""},
      {"# fine\n[section]\n", "wrong.conf:2: \"[section]\" is not of the form NAME = VALUE"},
      {"\x7f\x45\x4c\x46 garbage\n", "is not of the form NAME = VALUE"},
      {"log-level = info\nlog-level = warn\n",
       "wrong.conf:2: log-level takes one value, and line 1 already gives one"},
      {"# a comment\nlog-level = loud\n",
       "wrong.conf:2: --log-level: loud not in {debug,info,warn,error}"}};
  for (const auto& path : daemons()) {
    std::string name;
    for (const std::string& part : path) name += (name.empty() ? "" : " ") + part;
    for (const auto& one : cases) {
      Parser parser;
      const std::string file = directory.write("wrong.conf", one.text);
      const std::vector<std::string> need = path == std::vector<std::string>{"artifacts", "serve"}
                                                ? std::vector<std::string>{"directory"}
                                                : std::vector<std::string>{"--data-dir", "/d"};
      const bool wants = path.front() != "operator" && path.front() != "gateway";
      std::string expected = one.expected;
      if (const std::size_t at = expected.find("NAME`"); at != std::string::npos)
        expected.replace(at, 4, name);
      EXPECT_THAT(parser.parse(with(with(path, wants ? need : std::vector<std::string>()),
                                    {"--config", file})),
                  HasSubstr(expected))
          << name;
    }
  }
}

TEST(CommandConfigFile, UnreadableConfigFileIsAnError) {
  const os::testing::TestDirectory directory;
  for (const auto& path : daemons()) {
    EXPECT_THAT(Parser().parse(with(path, {"--config", directory / "missing"})),
                HasSubstr("missing: No such file or directory"));
    EXPECT_THAT(Parser().parse(with(path, {"--config", directory.path()})),
                HasSubstr(directory.path().string() + ": Is a directory"));
  }
}

TEST(CommandConfigFile, CommandLineOverridesTheConfigFile) {
  const os::testing::TestDirectory directory;
  const std::string file =
      directory.write("up.conf",
                      "data-dir = /from file\nlog-level=warn\r\nnode = a\nnode = b=edge\nimage = "
                      "\"\"\nlisten=[::1]:0\ndetach = true\n");
  Parser parser;
  ASSERT_EQ(parser.parse({"up", "--config", file, "--log-level", "debug", "--node", "c"}), "");
  CLI::App& up = parser.command({"up"});
  EXPECT_EQ(up.get_option("--data-dir")->results().front(), "/from file");
  EXPECT_EQ(parser.globals.log_level, "debug");
  EXPECT_THAT(up.get_option("--node")->results(), ::testing::ElementsAre("c"));
  EXPECT_THAT(up.get_option("--image")->results(), ::testing::ElementsAre(""));
  EXPECT_EQ(up.get_option("--listen")->results().front(), "[::1]:0");
  Parser file_only;
  ASSERT_EQ(file_only.parse({"up", "--config=" + file}), "");
  EXPECT_THAT(file_only.command({"up"}).get_option("--node")->results(),
              ::testing::ElementsAre("a", "b=edge"));
  Parser off;
  ASSERT_EQ(off.parse({"operator", "--config",
                       directory.write("operator.conf", "leader-elect = false\n")}),
            "");
  EXPECT_EQ(off.command({"operator"}).get_option("--leader-elect")->as<bool>(), false);
  EXPECT_THAT(
      Parser().parse({"up", "--config", directory.write("flag.conf", "detach = perhaps\n")}),
      HasSubstr("flag.conf:1: detach must be true or false, not \"perhaps\""));
}

TEST(Help, FitsTheTerminal) {
  for (const auto& path : all_paths()) {
    Parser parser;
    for (const CLI::AppFormatMode mode : {CLI::AppFormatMode::Normal, CLI::AppFormatMode::All}) {
      const CLI::App& command = parser.command(path);
      std::istringstream text(command.get_formatter()->make_help(&command, "varda", mode));
      for (std::string line; std::getline(text, line);) {
        const auto columns = std::count_if(line.begin(), line.end(), [](char c) {
          return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
        });
        EXPECT_LE(columns, 80) << path.front() << ": " << line;
      }
    }
  }
}

TEST(Help, ShortHelpListsFewFlagsAndHelpAllListsEveryFlag) {
  for (const auto& path : daemons()) {
    Parser parser;
    const CLI::App& command = parser.command(path);
    const std::string few =
        command.get_formatter()->make_help(&command, "varda", CLI::AppFormatMode::Normal);
    const std::string all =
        command.get_formatter()->make_help(&command, "varda", CLI::AppFormatMode::All);
    std::size_t flags = 0;
    std::istringstream lines(few);
    for (std::string line; std::getline(lines, line);) flags += line.starts_with("  -");
    EXPECT_LE(flags, 15u) << path.front() << few;
    EXPECT_THAT(few, Not(HasSubstr("--log-format")));
    EXPECT_THAT(few, HasSubstr("--help-all shows further flags"));
    for (const CLI::Option* option : command.get_options()) {
      if (!option->get_lnames().empty()) {
        EXPECT_THAT(all, HasSubstr("--" + option->get_lnames().front()));
      }
    }
  }
}

TEST(Help, HelpCommandAcceptsEveryCommandPath) {
  for (const auto& path : all_paths()) {
    Parser parser;
    EXPECT_EQ(parser.parse(with({"help"}, path)), "") << path.front();
  }
  EXPECT_EQ(Parser().parse({"help", "nothing"}), "varda has no command nothing");
  EXPECT_EQ(Parser().parse({"help", "models", "nothing"}), "varda models has no command nothing");
}

// bash runs the script and prints the completions of each command line.
TEST(Completion, OffersCommandsFlagsAndValuesInBash) {
  const os::testing::TestDirectory directory;
  Parser parser;
  const std::string script = directory.write("completion", completion_script(parser.app, "bash"));
  const struct {
    const char *typed, *expected;
  } cases[] = {{"varda ag", "agent"},
               {"varda agent --run", "--runner"},
               {"varda agent --runner p", "process"},
               {"varda agent --runner = p", "process"},
               {"varda artifacts pi", "pin"},
               {"varda artifacts ls --out", "--output"},
               {"varda artifacts ls -o j", "json"},
               {"varda completion z", "zsh"},
               {"varda models l", "ls"},
               {"varda tr", "train"},
               {"varda train --opt", "--optimizer"},
               {"varda train --optimizer s", "sgd"},
               {"varda node r", "remove"},
               {"varda node remove --y", "--yes"}};
  for (const auto& one : cases) {
    const std::string command =
        ". " + script + "; COMP_WORDS=(" + one.typed +
        "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _varda; echo \"${COMPREPLY[*]}\"";
    const os::testing::Ended ended = os::testing::run_in_child([&] {
      return ::execlp("bash", "bash", "--norc", "-c", command.c_str(), static_cast<char*>(nullptr));
    });
    EXPECT_EQ(ended.out, one.expected + std::string("\n")) << one.typed << ended.err;
  }
  EXPECT_THAT(completion_script(parser.app, "zsh"), HasSubstr("bashcompinit"));
}

}  // namespace all_commands_test
}  // namespace varda::app
