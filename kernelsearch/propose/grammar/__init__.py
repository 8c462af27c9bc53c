"""The grammar of all allowed answers for one parent kernel, and what an answer makes of that parent."""

from kernelsearch.propose.grammar.answer import STAGES, Answer, AnswerRejection
from kernelsearch.propose.grammar.build import Grammar, NoGrammar, build_grammar
from kernelsearch.propose.grammar.whole_kernel import WholeKernel

__all__ = ["STAGES", "Answer", "AnswerRejection", "Grammar", "NoGrammar", "WholeKernel", "build_grammar"]
