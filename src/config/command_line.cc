#include <algorithm>

#include "config/input.h"
#include "config/text_value.h"

namespace megatron::config {
namespace {

/// A dash and a digit or a point begin a value: no option does.
bool is_option(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && std::string_view("0123456789.").find(word[1]) == std::string_view::npos &&
         word.find(' ') == std::string::npos;
}

/// Walks over the words of a command line.
class Reader {
 public:
  Reader(const Tables& tables, const std::vector<std::string>& args, const std::vector<CommandOption>& own,
         const std::string& origin, Input& input)
      : tables_(tables), args_(args), own_(own), origin_(origin), input_(input) {}

  void read() {
    while (at_ < args_.size()) {
      if (is_option(args_[at_]))
        read_option();
      else
        input_.rest.push_back(args_[at_++]);
    }
  }

 private:
  void read_option() {
    std::string name = args_[at_++];
    attached_ = false;
    if (const auto equals = name.find('='); equals != std::string::npos) {
      attached_ = true;
      attached_value_ = name.substr(equals + 1);
      name = name.substr(0, equals);
    }
    const auto own = std::find_if(own_.begin(), own_.end(), [&](const CommandOption& o) { return o.name == name; });
    if (own != own_.end()) return read_own(*own);
    if (has_control_character(name)) return refuse_control_characters("an option's name");
    if (const Option* option = tables_.options.find(name)) return read_known(*option, name);
    if (const ForeignOption* option = tables_.foreign.find(name)) return read_foreign(*option, name);
    Occurrence occurrence{name, name, following_words(-1), origin_};
    input_.unknown.push_back(std::move(occurrence));
  }

  /// Up to `count` values (-1: all) behind the option; the attached value of --name=value stands alone.
  std::vector<std::string> following_words(int count) {
    if (attached_) return {attached_value_};
    std::vector<std::string> words;
    while (at_ < args_.size() && !is_option(args_[at_]) && (count < 0 || static_cast<int>(words.size()) < count))
      words.push_back(args_[at_++]);
    return words;
  }

  void read_own(const CommandOption& option) {
    if (!option.takes_value) {
      if (attached_) return problem(option.name, "is a switch and takes no value");
      input_.own[option.name] = "true";
      return;
    }
    const std::vector<std::string> words = following_words(1);
    if (words.empty()) return problem(option.name, "needs a value");
    input_.own[option.name] = words.front();
  }

  void read_known(const Option& option, const std::string& written) {
    if (option.form == Form::set_true || option.form == Form::set_false) {
      if (attached_) return problem(written, "is a switch and takes no value");
      input_.known.push_back({option.name, written, {}, origin_});
      return;
    }
    std::vector<std::string> words = following_words(option.form == Form::list ? -1 : 1);
    if (words.empty() && !option.accepts_empty_list) return problem(written, "needs a value");
    for (const std::string& word : words) {
      if (has_control_character(word)) return refuse_control_characters(written);
      if (word.empty() && option.type == Type::text) return problem(written, "the value is empty");
    }
    input_.known.push_back({option.name, written, std::move(words), origin_});
  }

  void read_foreign(const ForeignOption& option, const std::string& written) {
    if (option.is_switch && attached_) return problem(written, "is a switch and takes no value");
    input_.foreign.push_back({option.names.front(), written, following_words(option.max_values), origin_});
  }

  void refuse_control_characters(const std::string& what) {
    input_.problems.push_back(str_cat(what, " (", origin_, "): holds a line break or another control character"));
  }
  void problem(const std::string& name, const std::string& text) {
    input_.problems.push_back(str_cat(name, attached_ ? "=" + attached_value_ : "", " (", origin_, "): ", text));
  }

  const Tables& tables_;
  const std::vector<std::string>& args_;
  const std::vector<CommandOption>& own_;
  const std::string& origin_;
  Input& input_;
  std::size_t at_ = 0;
  bool attached_ = false;
  std::string attached_value_;
};

}  // namespace

void read_command_line(const Tables& tables, const std::vector<std::string>& args,
                       const std::vector<CommandOption>& own, const std::string& origin, Input& input) {
  Reader(tables, args, own, origin, input).read();
}

}  // namespace megatron::config
