#include "completion.h"

#include <vector>

namespace varda::app {
namespace {

struct Command {
  std::string path;  // "artifacts ls"; "" is the program itself
  const CLI::App* app = nullptr;
};

void collect(const CLI::App& app, const std::string& path, std::vector<Command>& out) {
  out.push_back({path, &app});
  for (const CLI::App* below : app.get_subcommands({}))
    collect(*below, path.empty() ? below->get_name() : path + " " + below->get_name(), out);
}

/// Short names come first: "-o", then "--output".
std::vector<std::string> spellings(const CLI::Option& option) {
  std::vector<std::string> out;
  for (const std::string& name : option.get_snames()) out.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) out.push_back("--" + name);
  return out;
}

/// CLI11 shows the values of a flag as "TEXT:{text,json}".
std::string values_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t open = type.find('{'), close = type.rfind('}');
  if (open == std::string::npos || close == std::string::npos || close < open) return "";
  std::string values = type.substr(open + 1, close - open - 1);
  for (char& c : values)
    if (c == ',') c = ' ';
  return values;
}

/// `text` must contain no quote, like the names of commands and flags.
std::string in_single_quotes(const std::string& text) { return "'" + text + "'"; }

/// Shell branches of `case`: the arguments that may follow a command.
std::string completions_by_command(const std::vector<Command>& commands) {
  std::string out;
  for (const Command& command : commands) {
    std::string completions;
    for (const CLI::App* below : command.app->get_subcommands({}))
      completions += (completions.empty() ? "" : " ") + below->get_name();
    for (const CLI::Option* option : command.app->get_options()) {
      if (const std::string values = values_of(*option);
          option->get_positional() && !values.empty())
        completions += (completions.empty() ? "" : " ") + values;
    }
    for (const CLI::Option* option : command.app->get_options()) {
      if (option->get_group().empty()) continue;
      for (const std::string& name : spellings(*option))
        completions += (completions.empty() ? "" : " ") + name;
    }
    out += "    " + in_single_quotes(command.path) + ") words=" + in_single_quotes(completions) +
           " ;;\n";
  }
  return out;
}

/// Shell branches of `case`: the values that may follow a flag of a command.
std::string values_by_flag(const std::vector<Command>& commands) {
  std::string out;
  for (const Command& command : commands) {
    for (const CLI::Option* option : command.app->get_options()) {
      const std::string values = values_of(*option);
      if (values.empty() || option->get_group().empty()) continue;
      std::string pattern;
      for (const std::string& name : spellings(*option))
        pattern += (pattern.empty() ? "" : "|") + in_single_quotes(command.path + " " + name);
      if (!pattern.empty())
        out += "    " + pattern + ") values=" + in_single_quotes(values) + " ;;\n";
    }
  }
  return out;
}

std::string paths_of(const std::vector<Command>& commands) {
  std::string out;
  for (const Command& command : commands)
    if (!command.path.empty()) out += (out.empty() ? "" : "|") + in_single_quotes(command.path);
  return out;
}

constexpr const char* kCompletionHead = R"(_varda() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command='' next i words='' values=''
  # bash splits --flag=value into three words.
  if [[ $word == '=' ]]; then
    word=''
  elif [[ $before == '=' ]]; then
    before=${COMP_WORDS[COMP_CWORD-2]}
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    next="${command:+$command }${COMP_WORDS[i]}"
    case "$next" in
)";

constexpr const char* kCompletionTail = R"(  if [[ -n $values ]]; then
    COMPREPLY=($(compgen -W "$values" -- "$word"))
  elif [[ $word == -* || " $words" != ' -'* ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$word"))
  else
    COMPREPLY=()
  fi
}
complete -o default -F _varda varda
)";

}  // namespace

std::string completion_script(const CLI::App& parser, const std::string& shell) {
  std::vector<Command> commands;
  collect(parser, "", commands);
  std::string out;
  if (shell == "zsh") {
    out =
        "# zsh completion of varda: source <(varda completion zsh)\nautoload -U +X compinit "
        "bashcompinit\n";
    out += "(( $+functions[compdef] )) || compinit\nbashcompinit\n";
  } else {
    out = "# bash completion of varda: source <(varda completion bash)\n";
  }
  out += kCompletionHead;
  out += "      " + paths_of(commands) + ") command=$next ;;\n    esac\n  done\n";
  out += "  case \"$command $before\" in\n" + values_by_flag(commands) + "  esac\n";
  out += "  case \"$command\" in\n" + completions_by_command(commands) + "  esac\n";
  return out + kCompletionTail;
}

}  // namespace varda::app
