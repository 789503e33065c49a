"""What a line says of a server that comes up: its phase, a bar, readiness, a request it served."""

from __future__ import annotations

from backends.servers.engines import PHASE_ORDER, Engine, Phase
from backends.servers.lines import LogLine
from backends.servers.progress import Progress
from backends.servers.run import PhaseEntry, Place, Run
from backends.servers.words import Words


class StartSigns:
    """Reads them in the words of one engine, and notes them in the run at hand."""

    def __init__(self, engine: Engine, words: Words) -> None:
        self._engine = engine
        self._words = words

    def take(self, run: Run, line: LogLine, message: str) -> bool:
        """Take a line that is no error; whether it announces a phase."""
        announces = False
        if run.ready is None or run.presumed:
            announces = self._find_phase(run, line, message)
            self._find_ready(run, line, message)
        self.served(run, line)
        return announces

    def bar(self, run: Run, progress: Progress, number: int, text: str) -> None:
        """Take a progress bar."""
        if run.up and not run.presumed:
            return
        for label, phase in self._engine.bars:
            if label.search(progress.label) is not None:
                if run.phase is not phase and PHASE_ORDER[phase] >= PHASE_ORDER[Phase.DOWNLOADING]:
                    self._enter(run, PhaseEntry(phase, number, None, text[:400]))
                break
        else:
            if run.up:
                return
        run.progress = progress

    def served(self, run: Run, line: LogLine) -> None:
        """A request was carried out: the server lives, and what was complained about is past."""
        if not self._words.served.found_in(line.message):
            return
        if not run.up or (run.dead is not None and not self._engine.outlives_workers):
            return
        run.served += 1
        run.waits, run.first_wait = 0, None
        run.dead = None
        run.presumed = False
        if run.causes or run.exceptions:
            run.forgive()

    def _find_phase(self, run: Run, line: LogLine, message: str) -> bool:
        """Enter the phase that a line announces; whether it announces one."""
        if not self._words.marks.found_in(message):
            return False
        for mark in self._engine.marks:
            if mark.pattern.search(message) is None:
                continue
            if mark.ends:
                if mark.phase is Phase.LOADING:
                    run.loaded = True
                    run.progress = None
            else:
                entry = PhaseEntry(mark.phase, line.number, line.stamp, line.text[:400])
                self._enter(run, entry)
            return True
        return False

    @staticmethod
    def _enter(run: Run, entry: PhaseEntry) -> None:
        phase = entry.phase
        if run.presumed:
            if PHASE_ORDER[phase] >= PHASE_ORDER[Phase.HTTP]:
                return  # another worker comes up; the first is ready
            run.withdraw()
        if run.phases and run.phases[-1].phase is phase:
            if phase is Phase.LOADING and run.loaded:
                run.loaded = False
            return
        furthest = max((PHASE_ORDER[each.phase] for each in run.phases), default=-1)
        if PHASE_ORDER[phase] > furthest and run.dead is None:
            run.pass_over()
        if phase is Phase.LOADING:
            run.loaded = False
        run.progress = None
        run.phases.append(entry)
        # Ranks enter phases in turn; what matters is the newest, and a bound.
        del run.phases[:-256]

    def _find_ready(self, run: Run, line: LogLine, message: str) -> None:
        presumed = self._presume(run, message)
        if not presumed and not self._words.ready.found_in(message):
            return
        run.forgive()
        run.dead = None
        run.stop_line = None
        run.stops.clear()
        if run.presumed:
            run.withdraw()
        run.ready = Place(line.number, line.text[:400])
        run.presumed = presumed
        run.progress = None
        run.phases.append(PhaseEntry(Phase.READY, line.number, line.stamp, line.text[:400]))

    def _presume(self, run: Run, message: str) -> bool:
        """Whether a line is the last word of a server that says no more when it is ready."""
        for index, each in enumerate(self._engine.presumptions):
            if index in run.expecting:
                if run.ready is None and each.then.search(message) is not None:
                    return True
            elif each.after.search(message) is not None:
                run.expecting.add(index)
        return False
