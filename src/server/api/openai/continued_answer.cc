#include "src/server/api/openai/continued_answer.h"

#include <string_view>
#include <utility>

namespace ebb::server {
namespace {

std::string TextOfTokens(const Model& model, const std::vector<Token>& tokens) {
  std::string text;
  for (const Token token : tokens) text += model.TokenText(token, Model::ControlTokens::kShow);
  return text;
}

// Tokenizes text in the middle of a prompt. SentencePiece vocabularies may add a blank before every
// text (add_space_prefix): such a text is tokenized after a line break, and the tokens of the line
// break and the blank are dropped.
Result<std::vector<Token>> TokenizeBehind(const Model& model, const BegunPiece& piece) {
  EBB_ASSIGN_OR_RETURN(std::vector<Token> tokens,
                       model.Tokenize(piece.text, Model::AddBos::kNo, piece.specials));
  if (TextOfTokens(model, tokens) != " " + piece.text) return tokens;
  EBB_ASSIGN_OR_RETURN(const std::vector<Token> behind,
                       model.Tokenize("\n" + piece.text, Model::AddBos::kNo, piece.specials));
  std::string front;
  for (size_t i = 0; i < behind.size() && front.size() < 2; ++i) {
    front += model.TokenText(behind[i], Model::ControlTokens::kShow);
    if (front == "\n" || front == " \n") {
      return std::vector<Token>(behind.begin() + static_cast<std::ptrdiff_t>(i) + 1, behind.end());
    }
  }
  return tokens;
}

// Sets how the rest of the answer is read: it begins within a thought or after content.
void SetRest(const ChatMessage& begun, ChatPrompt* prompt) {
  if (begun.content.empty()) {
    if (!prompt->thinking_end.empty()) prompt->opens_in_thinking = true;
    return;
  }
  prompt->thinking_start.clear();
  prompt->thinking_end.clear();
  prompt->opens_in_thinking = false;
  prompt->channels = {};
  prompt->after_thought.clear();
  const bool holds_from_the_start = !prompt->grammar.empty() && prompt->grammar_triggers.empty();
  if (holds_from_the_start) prompt->grammar_prefix += begun.content;
}

}  // namespace

std::vector<BegunPiece> BegunPieces(const ChatMessage& begun, const ChatPrompt& prompt) {
  std::vector<BegunPiece> pieces;
  const auto add = [&](std::string text, Model::Specials specials) {
    if (!text.empty()) pieces.push_back({std::move(text), specials});
  };
  const bool thinks = !prompt.thinking_end.empty();
  const bool has_thought = thinks && !begun.reasoning_content.empty();
  const bool has_channels = !prompt.channels.empty();
  const std::string line = has_channels ? "" : "\n";
  if (has_thought) {
    if (!prompt.opens_in_thinking) add(prompt.thinking_start + line, Model::Specials::kParse);
    add(begun.reasoning_content, Model::Specials::kAsText);
  }
  const bool is_open = has_thought || prompt.opens_in_thinking;
  if (is_open && !begun.content.empty()) {
    add(line + prompt.thinking_end + line + line, Model::Specials::kParse);
  }
  if (has_channels && !begun.content.empty()) {
    add((is_open ? prompt.channels.message : "") + prompt.channels.answer, Model::Specials::kParse);
  }
  add(begun.content, Model::Specials::kAsText);
  return pieces;
}

Result<Turn> BeginContinuedTurn(const Model& model, ChatRequest chat, const ChatMessage& begun,
                                int context) {
  if (!begun.content.empty() && begun.reasoning_content.empty()) chat.thinking = Thinking::kOff;
  const std::vector<ChatMessage> messages = std::exchange(chat.messages, {});
  EBB_ASSIGN_OR_RETURN(Turn turn,
                       BeginTurn(model, {.request = std::move(chat)}, messages, context));
  const size_t begun_bytes = begun.content.size() + begun.reasoning_content.size();
  EBB_RETURN_IF_ERROR(CheckPromptBytes(model, begun_bytes, turn.tokens.size(), context));
  for (const BegunPiece& piece : BegunPieces(begun, turn.prompt)) {
    EBB_ASSIGN_OR_RETURN(const std::vector<Token> tokens, TokenizeBehind(model, piece));
    turn.tokens.insert(turn.tokens.end(), tokens.begin(), tokens.end());
    turn.num_begun += tokens.size();
  }
  SetRest(begun, &turn.prompt);
  return turn;
}

}  // namespace ebb::server
